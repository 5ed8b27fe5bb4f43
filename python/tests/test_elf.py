"""The libraries and the program of the wheel have the flags of packaging/cmake/hardening.cmake, and export only public
functions."""
import subprocess
import sysconfig
from pathlib import Path

import relpos

ROOT = Path(__file__).resolve().parents[2]


def test_built_files():
    package = Path(relpos.__file__).parent
    files = [f for f in package.rglob("*") if f.is_file() and not f.is_symlink() and f.read_bytes()[:4] == b"\x7fELF"]
    files += [f for f in Path(sysconfig.get_path("data")).glob("lib*/librelpos*.so*") if f.is_file()]
    names = {f.name for f in files}
    for start in ("_core", "librelpos.so", "librelpos_t5", "relpos"):
        assert any(name.startswith(start) for name in names), start
    done = subprocess.run([str(ROOT / "tests/api/elf.sh"), *map(str, sorted(files))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
