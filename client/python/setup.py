"""Builds the wheel: the Python files, and what package_resources.py makes. Nothing is written into the source tree."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

sys.path.insert(0, str(Path(__file__).resolve().parent))
from package_resources import launch_library, make_resources


class BuildPackage(build_py):
    def run(self) -> None:
        super().run()
        make_resources(Path(self.build_lib) / "fuseline")


class BuildWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        # The library is loaded with ctypes: it depends on the machine, and not on the interpreter.
        _, _, platform = super().get_tag()
        return ("py3", "none", platform if launch_library() is not None else "any")


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return launch_library() is not None


scratch = tempfile.mkdtemp(prefix="fuseline-build.")
setup(
    cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel},
    distclass=Package,
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
shutil.rmtree(scratch, ignore_errors=True)
