"""The official SDK, module by module.

`import lakefs_sdk` runs all of its 136 modules, most of them models of calls that Perago never makes: that was half of
what an executor's start cost. Here its packages are made known without their own code being run. Their modules are
imported as they are needed, and whoever asks a package for anything else, such as a body that uses the SDK, gets it.
"""

import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_PACKAGES = ("lakefs_sdk", "lakefs_sdk.api", "lakefs_sdk.models")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Package(ModuleType):
    """Looks for a class in the module that is named after it; only for other names the package's own code is run."""

    def __getattr__(self, name: str) -> Any:
        module = f"{self.__name__}.{_WORD_BEGINS.sub('_', name).lower()}"
        if find_spec(module) is not None:
            found = import_module(module)
            return getattr(found, name, found)
        object.__setattr__(self, "__class__", ModuleType)
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def enter_sdk() -> None:
    """Make the SDK's packages known; one that somebody imported before stays as it is."""
    for name in _PACKAGES:
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            package = module_from_spec(spec)
            package.__class__ = _Package
            sys.modules[name] = package
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, package)
