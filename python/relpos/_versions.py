"""Check the versions of other libraries.  SPDX-License-Identifier: Apache-2.0"""
import warnings


def _numbers(version):
    return [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]


def need(name, found, oldest, otherwise):
    """Raise ImportError if version `found` of a library is older than `oldest`. Versions are strings such as "2.8"."""
    if _numbers(found) < _numbers(oldest):
        raise ImportError(f"{name} is version {found}, expected {oldest} or later: {otherwise}")


def warn_of_newer(name, found, newest, then):
    """Warn if version `found` of a library is newer than `newest`, the latest version that was tested."""
    if _numbers(found) > _numbers(newest):
        warnings.warn(f"{name} is version {found}, and this relpos was tested up to {newest}: {then}", stacklevel=3)
