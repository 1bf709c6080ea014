"""Makes `tests.support` importable without putting the repository root first on the path.

With the root first, `import datasets` would find our folder instead of the well-known package.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
