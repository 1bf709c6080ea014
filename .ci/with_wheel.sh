#!/usr/bin/env bash
# Builds a wheel of this checkout, installs it into a throw-away environment outside the repository
# and runs one check there:
#
#     .ci/with_wheel.sh types      mypy on every module of the package
#     .ci/with_wheel.sh imports    import-linter on the direction of imports
#
# Neither tool follows the hook of an editable install to the folders that carry another import name
# (`methods/` is `bench.methods`). What is checked here is what a user installs, py.typed included.
set -euo pipefail

check=${1:?expected: types or imports}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$repository/.venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Built from a copy: `build/lib` in the repository would keep modules that were deleted since.
mkdir "$scratch/source" "$scratch/wheel" "$scratch/empty"
(cd "$repository" && tar -cf - --exclude=__pycache__ \
    pyproject.toml setup.py README.md LICENSE bench methods datasets metrics leaderboard) |
    tar -xf - -C "$scratch/source"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-index --wheel-dir "$scratch/wheel" "$scratch/source"

"$python" -m venv --without-pip "$scratch/venv"
packages=$("$scratch/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-compile \
    --target "$packages" "$scratch"/wheel/*.whl
# The dependencies come from the development environment. A line that is a plain path extends
# sys.path without running the hooks found there, so that the editable install stays out of sight.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$packages/dependencies.pth"

cd "$scratch/empty"
case $check in
types)
    # Messages name the file of the checkout, not its installed copy.
    "$python" -m mypy --config-file "$repository/pyproject.toml" \
        --cache-dir "$repository/.mypy_cache" \
        --python-executable "$scratch/venv/bin/python" -p bench |
        sed -E -e "s|^.*/site-packages/bench/|bench/|" \
            -e 's#^bench/(methods|datasets|metrics|leaderboard)/#\1/#'
    ;;
imports)
    PYTHONPATH=$packages "$repository/.venv/bin/lint-imports" --no-cache \
        --config "$repository/pyproject.toml"
    ;;
*)
    echo "unknown check '$check': expected types or imports" >&2
    exit 2
    ;;
esac
