"""relpos under torch.compile and torch.export. Importing this makes relpos.attention an operator of torch wherever a call is traced.

SPDX-License-Identifier: Apache-2.0"""
from . import _operator  # noqa: F401
