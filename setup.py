"""What pyproject.toml cannot say: a built package has the parameter files in it, as spnb/params."""

from pathlib import Path
from shutil import copytree, rmtree

from setuptools import setup
from setuptools.command.build_py import build_py


class WithParams(build_py):
    """Copies params/ beside the modules; an editable install reads those of the project."""

    def run(self):
        if not self.editable_mode:  # what an earlier build left, and the project has no more
            rmtree(Path(self.build_lib) / "spnb", ignore_errors=True)
        super().run()
        if not self.editable_mode:
            copytree("params", Path(self.build_lib) / "spnb" / "params", dirs_exist_ok=True)


setup(cmdclass={"build_py": WithParams})
