"""What other libraries have to be at least.  SPDX-License-Identifier: Apache-2.0"""


def need(name, found, oldest, otherwise):
    """ImportError where version `found` of a library is older than `oldest`, such as "2.8"."""
    def numbers(version):
        return [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]

    if numbers(found) < numbers(oldest):
        raise ImportError(f"{name} is {found}, and {oldest} or later is needed: {otherwise}")
