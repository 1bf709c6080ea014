"""Code on its way to the workers of a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench.cli.main import main as cli
from bench.cluster import shipping
from bench.errors import InputError
from bench.plugins import registry
from tests.support.installed import install_plugin
from tests.support.places import ROOT

DRIVER = """
import json, sys
import ray
from bench.cluster.shipping import runtime_env

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False,
         logging_level="ERROR", runtime_env=runtime_env())


def look():
    import importlib.metadata
    import bench
    from bench.plugins import registry

    plugin = registry.method_class("misbehaves")
    return {
        "bench": bench.__file__,
        "plugin": sys.modules[plugin.__module__].__file__,
        "methods": registry.method_names(),
        "datasets": len(registry.dataset_names()),
        "metrics": len(registry.metric_names()),
        "source": __import__("bench.engine.keys").engine.keys.method_source_hash("misbehaves"),
        "version": importlib.metadata.version("misbehaves"),
    }


from bench.engine import keys
print(json.dumps([ray.get(ray.remote(look).remote()), keys.method_source_hash("misbehaves")]))
"""


@pytest.mark.slow
def test_workers_import_what_was_sent(tmp_path: Path) -> None:
    environment = install_plugin(tmp_path / "packages")
    # A checkout in the driver's folder, as it was last year: a worker must not take it.
    (tmp_path / "checkout" / "bench").mkdir(parents=True)
    (tmp_path / "checkout" / "bench" / "__init__.py").write_text("raise ImportError('stale')")
    (tmp_path / "driver.py").write_text(DRIVER)
    # The plugin's folder is on the driver's path only: the workers are given another one.
    code = (
        "import os, sys, runpy; sys.path.insert(0, os.environ.pop('PYTHONPATH')); "
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "driver.py")],
        cwd=tmp_path / "checkout",
        env={**environment, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen, source = json.loads(done.stdout.splitlines()[-1])
    for place in (seen["bench"], seen["plugin"]):
        assert "runtime_resources" in place, "the copy that Ray unpacked"
    assert {"misbehaves", "hangs", "waits"} <= set(seen["methods"])
    assert set(registry.method_names()) <= set(seen["methods"])
    assert seen["metrics"] == len(registry.metric_names())
    assert seen["datasets"] >= 20
    assert seen["version"] == "1.0"
    assert seen["source"] == source, "a cell gets the key that the driver gives it"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with data, caches and several modules, as pip installs it."""
    root = tmp_path / "site"
    package = root / "many_plugins"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "x.pyc").write_bytes(b"x")
    (package / ".cache").write_text("x")
    (package / "__init__.py").write_text("raise RuntimeError('it is not imported to be sent')")
    (package / "bounds.json").write_text("{}")
    (root / "many_helpers.py").write_text("")
    information = root / "many.plugins-2.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: many.plugins\nVersion: 2.0\n"
    )
    (information / "entry_points.txt").write_text("[bench.metrics]\nmany = many_plugins.a:B\n")
    (information / "RECORD").write_text(
        "many_plugins/__init__.py,,\nmany_plugins/bounds.json,,\nmany_helpers.py,,\n"
        "../../bin/many.py,,\n"
    )
    monkeypatch.syspath_prepend(root)
    return root


def test_a_plugin_is_staged_whole_and_without_caches(plugin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "staged"
    folder.mkdir()
    assert shipping.runtime_env(folder) == {"working_dir": str(folder)}
    staged = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    own = {name for name in staged if not name.startswith("bench/")}
    assert own == {
        "many_plugins/__init__.py",
        "many_plugins/bounds.json",
        "many_helpers.py",
        "many.plugins-2.0.dist-info/METADATA",
        "many.plugins-2.0.dist-info/entry_points.txt",
        "many.plugins-2.0.dist-info/top_level.txt",
    }
    assert {f"bench/{name}/__init__.py" for name in shipping.FOLDERS} <= staged
    assert {
        "bench/cluster/driver.py",
        "bench/engine/grids/smoke.toml",
        "bench/methods/ndpdc/ldpdc.py",
    } <= staged
    assert any(name.startswith("bench/leaderboard/templates/") for name in staged)
    assert not [name for name in staged if "__pycache__" in name or "/." in name]


def test_what_is_staged_needs_no_installed_copy(tmp_path: Path) -> None:
    shipping.runtime_env(tmp_path)
    code = (
        "import bench, bench.errors, bench.methods, bench.datasets, bench.metrics, "
        "bench.leaderboard; print(bench.__file__)"
    )
    # -S: nothing that is installed here can help.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_a_package_that_is_too_large_is_named(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "_LIMIT_MB", 15)
    (plugin / "many_plugins" / "weights.bin").write_bytes(bytes(20 * 2**20))
    folder = tmp_path / "staged"
    folder.mkdir()
    with pytest.raises(InputError, match="most of it in 'many_plugins'; up to 15 MB"):
        shipping.runtime_env(folder)


def test_a_plugin_whose_module_is_gone_is_named(plugin: Path, tmp_path: Path) -> None:
    (plugin / "many_plugins" / "__init__.py").unlink()
    (plugin / "many_plugins").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"many\.plugins: its module 'many_plugins'"):
        shipping.runtime_env(tmp_path / "staged")


def test_the_kubernetes_example_has_what_kuberay_needs() -> None:
    text = (ROOT / "docs" / "examples" / "kuberay.yaml").read_text()
    claim, job = yaml.safe_load_all(text)
    assert claim["kind"] == "PersistentVolumeClaim"
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    words = shlex.split(spec["entrypoint"])
    assert words[:2] == ["bench", "run"]
    # The options exist, and the driver joins the cluster that it is started in.
    known = {option for parameter in cli.commands["run"].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert words[words.index("--ray-address") + 1] == "auto"
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == importlib.metadata.version("ray")
    assert cluster["authOptions"]["mode"] == "token"
    head = cluster["headGroupSpec"]
    groups = [head, *cluster["workerGroupSpecs"]]
    assert len(groups) > 1
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] and container["resources"]["limits"]["memory"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert group["groupName"]
    # Results and data are on the volume, which the head has.
    (mount,) = head["template"]["spec"]["containers"][0]["volumeMounts"]
    for option in ("--out", "--data-dir"):
        assert words[words.index(option) + 1].startswith(mount["mountPath"])
    (volume,) = head["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
