#!/usr/bin/env bash
# Install EdgeSpec into a virtual environment, with a llama.cpp build that does not crash here.
#
# GCC on x86 drops stores that its AMX intrinsics need (dead-store elimination), and the first decode
# dies with SIGILL: the two flags below keep them. pip's wheel cache ignores compiler flags, so a wheel
# built without them may be reused: the probe finds out, and then the wheel is built again, uncached.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-python3}"
VENV="${VENV:-.venv}"

"$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || {
    echo "EdgeSpec needs Python 3.11, 3.12 or 3.13; '$PYTHON' is $("$PYTHON" --version 2>&1). Run: make PYTHON=python3.12 $*" >&2
    exit 1
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"

compiler="${CC:-cc}"
case "$(uname -m)" in
    x86_64 | amd64 | i?86)
        if "$compiler" --version 2>/dev/null | grep -qiE 'gcc|free software foundation'; then
            export CFLAGS="${CFLAGS:-} -fno-tree-dse -fno-dse"
            export CXXFLAGS="${CXXFLAGS:-} -fno-tree-dse -fno-dse"
        fi
        ;;
esac
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}"

pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }
echo "Installing (the first time this compiles llama.cpp: about 8 minutes on two cores)..." >&2
pip install --quiet -e '.[dev]'

if ! "$VENV/bin/python" -m edgespec.llama; then
    echo "The cached llama.cpp build crashes on this CPU; building it again with the right flags..." >&2
    pip install --quiet --force-reinstall --no-deps --no-cache-dir "$(pip freeze | grep -i '^llama.cpp.python==')"
    "$VENV/bin/python" -m edgespec.llama --again ||
        echo "AMX kernels still crash; EdgeSpec will use the others (edgespec says so when it loads a model)." >&2
fi
