"""The public API for type checkers: the same names as `PUBLIC` in `__init__.py`."""

from collections.abc import Mapping

from bench.data import augmentation as augmentation
from bench.data.augmentation import Augmentation as Augmentation
from bench.data.dataset import Counts as Counts
from bench.data.dataset import Dataset as Dataset
from bench.data.dataset import Declaration as Declaration
from bench.data.dataset import Split as Split
from bench.data.dataset import declaration_from_table as declaration_from_table
from bench.data.encoder import MISSING_CATEGORY as MISSING_CATEGORY
from bench.data.encoder import Block as Block
from bench.data.encoder import EncodedRows as EncodedRows
from bench.data.encoder import Encoder as Encoder
from bench.data.encoder import Floats as Floats
from bench.data.encoder import Integers as Integers
from bench.data.encoder import coerce_columns as coerce_columns
from bench.data.files import Obtain as Obtain
from bench.data.files import data_folder as data_folder
from bench.data.files import find_file as find_file
from bench.data.files import open_data as open_data
from bench.data.files import read_bytes as read_bytes
from bench.data.files import read_csv as read_csv
from bench.data.schema import Categorical as Categorical
from bench.data.schema import Column as Column
from bench.data.schema import Numeric as Numeric
from bench.data.schema import Role as Role
from bench.data.schema import Rule as Rule
from bench.data.schema import Schema as Schema
from bench.data.schema import Task as Task
from bench.data.schema import read_toml as read_toml
from bench.data.truth import Truth as Truth
from bench.data.truth import auroc_with_error as auroc_with_error
from bench.errors import BenchError as BenchError
from bench.errors import DataError as DataError
from bench.errors import InputError as InputError
from bench.errors import InvalidReleaseError as InvalidReleaseError
from bench.errors import NotApplicable as NotApplicable
from bench.errors import NotComputable as NotComputable
from bench.errors import PrivacyContractError as PrivacyContractError
from bench.errors import SchemaError as SchemaError
from bench.plugins import registry as registry
from bench.plugins.method import Environment as Environment
from bench.plugins.method import Method as Method
from bench.plugins.method import Resources as Resources
from bench.plugins.method import Spec as Spec
from bench.plugins.metric import Direction as Direction
from bench.plugins.metric import Evaluation as Evaluation
from bench.plugins.metric import Family as Family
from bench.plugins.metric import Metric as Metric
from bench.plugins.metric import Output as Output
from bench.plugins.metric import Refit as Refit
from bench.plugins.metric import RefitMetric as RefitMetric
from bench.plugins.metric import Score as Score
from bench.plugins.metric import Scores as Scores
from bench.plugins.release import Claim as Claim
from bench.plugins.release import Clients as Clients
from bench.plugins.release import Detector as Detector
from bench.plugins.release import Federation as Federation
from bench.plugins.release import Release as Release
from bench.plugins.release import ReleasedModel as ReleasedModel
from bench.plugins.release import Rows as Rows
from bench.plugins.release import Traffic as Traffic
from bench.plugins.release import TrainedInRounds as TrainedInRounds
from bench.plugins.source import DatasetSource as DatasetSource
from bench.plugins.source import FileSource as FileSource
from bench.plugins.source import build_dataset as build_dataset
from bench.privacy.accounting import Budget as Budget
from bench.privacy.accounting import canonical as canonical
from bench.privacy.accounting import pld_epsilon as pld_epsilon
from bench.privacy.accounting import rdp_epsilon as rdp_epsilon
from bench.privacy.calibration import smallest_noise as smallest_noise
from bench.privacy.events import gaussian as gaussian
from bench.privacy.events import laplace as laplace
from bench.privacy.events import sampled_gaussian as sampled_gaussian
from bench.privacy.foreign import global_seeds as global_seeds
from bench.privacy.foreign import quiet as quiet
from bench.privacy.kernel import Plan as Plan
from bench.privacy.kernel import PrivateData as PrivateData
from bench.privacy.noise import SeededNoise as SeededNoise
from bench.privacy.opening import open_private as open_private
from bench.stats.multiple_testing import holm as holm

__version__: str
PUBLIC: Mapping[str, str]
HOMES: Mapping[str, str]
