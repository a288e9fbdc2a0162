"""Is run by every Python below ``pymongo-deprio run``, as its folder leads PYTHONPATH.

Most of them have nothing to do with MongoDB, and some are older than the package allows: so it
imports nothing before PyMongo is imported, and is plain enough for any of them.
"""

import os
import sys

IS_PYTHON_2 = sys.version_info < (3,)


class _Finder:
    """Finds PyMongo as the finders behind it do, and has it patched once it is imported.

    While a finder is asked, Python holds the import lock of all modules: whoever imports something
    here may wait for a thread that waits for that lock. And it stays in its place, as threads walk
    along sys.meta_path.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return where PyMongo is; None for all else."""
        if name != "pymongo":
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(_Finder) + 1 :]:
            find_spec = getattr(finder, "find_spec", None)  # very old ones have none
            spec = find_spec and find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """Loads as another one does, which then takes its place again."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        create = getattr(self._loader, "create_module", None)
        return create and create(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _enable()


def _enable():
    try:
        import pymongo_deprio.auto  # noqa: F401, PLC0415
    except Exception as error:  # an application does not fail for its launcher
        if type(error).__module__.startswith("pymongo_deprio"):
            raise  # but for PYMONGO_DEPRIO_STRICT
        _tell("PyMongo is not patched in this process of {}: {}".format(sys.executable, error))


def _tell(message):
    try:
        sys.stderr.write("pymongo_deprio: " + message + "\n")
    except Exception:  # noqa: BLE001, S110 - a daemon may have closed it
        pass


def _run_what_is_hidden():
    """Run the sitecustomize that would have been found without this one."""
    here = os.path.dirname(__file__)
    # For good: another launcher's sitecustomize that looks for the next one must not find ours.
    sys.path[:] = [folder for folder in sys.path if folder != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401, PLC0415
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize" and not IS_PYTHON_2:
            raise
    finally:
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


if not IS_PYTHON_2:
    sys.meta_path.insert(0, _Finder)
_run_what_is_hidden()
