# What Doxygen reads in place of relpos.h, terms.h, facts.h, layers.h, t5.h and encoder.h, which keep plain comments: its marks, a group for each part, labels as
# paragraphs, tables as they are. SPDX-License-Identifier: Apache-2.0
s,^/\* -+ status \*/$,/** @defgroup status status\n * @{ */,
s,^/\* -+ (terms|facts|errors|failures|descriptions)(: .*) \*/$,/** @defgroup \1 \1\2\n * @{ */,
s,^/\* -+ (([a-z]+).*) \*/$,/** @} */\n/** @defgroup \2 \1\n * @{ */,
$s,$,\n/** @} */,
s,^/\* ,/** ,
s,^( +)/\* ,\1/** ,
s,^(.*[;\,{].*|.*RP_[A-Z0-9_]+ .*|.*[0-9] *)/\* ,\1/**< ,
/^ \*   /!s,([ (])<([A-Za-z]),\1\\<\2,g
s,^ \* (Shapes|Sign|Edges|Law|Ranges|Memory|Threads|Paths|Returns|Source|Progress|Draft)  +([^ ]), * @par \1\n * \2,
s,^ \* Accuracy (docs|rp_), * @par Accuracy\n * \1,
/^ \*   table /,/^ \* \(\*\)/s,^ \*   , *     ,
s,^typedef (enum|struct) (rp_[a-z0-9_]+ \{),\1 \2,
s,\} rp_[a-z0-9_]+;$,};,
/^#include "terms.def"/s,.*,python3 docs/term_values.py,e
/^#include "masks.def"/s,.*,sed -nE 's@^RP_X\\((RP_MASK_[A-Z0-9_]+)\, *([a-z_]+)\, "(.*)"\\)@\\1\, /**< \\2: \\3 */@p' include/relpos/masks.def,e
/^#(define RP_X|undef RP_X)/d
s,--([a-z]),\\--\1,g
