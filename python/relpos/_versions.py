"""Versions of other libraries: the oldest that works, and the newest that was tried.  SPDX-License-Identifier: Apache-2.0"""
import warnings


def _numbers(version):
    return [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]


def need(name, found, oldest, otherwise):
    """ImportError where version `found` of a library is older than `oldest`, such as "2.8"."""
    if _numbers(found) < _numbers(oldest):
        raise ImportError(f"{name} is {found}, and {oldest} or later is needed: {otherwise}")


def warn_of_newer(name, found, newest, then):
    """Warn where version `found` of a library is newer than `newest`, the newest that was tried."""
    if _numbers(found) > _numbers(newest):
        warnings.warn(f"{name} is {found}, and {newest} is the newest that this relpos was tried with: {then}", stacklevel=3)
