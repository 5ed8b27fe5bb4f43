"""Texts that tokenizers often split differently: white space, control characters, grapheme clusters, compatibility \
characters, scripts,
tokens inside text, and bytes that are not UTF-8. Used by make_data.py and python/tests/test_tokenizer.py.

SPDX-License-Identifier: Apache-2.0"""
import random

TEXTS = """
Hello world
The quick brown fox jumps over the lazy dog.
 leading
trailing \u0020
  two  spaces   three    four
\ttab\tand\t\ttabs
a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u1680h
\u200bzero\u200bwidth\ufeffno\u2060break
\u0001control\u0002\u0007\u001b[0m\u007f\u0080\u009f
a\rb\nc\r\nd\n\re\r\n
ﬁnd ﬂow oﬃce ﬀ ﬅ ﬆ
ＦＵＬＬ　ｗｉｄｔｈ　１２３！？
ｶﾞｷﾞｸﾞ ﾊﾟ ｱｲｳ
①②③ ⑳ ⒈ ㈱ ㋿ ㎏ ㍻ ㌀ ㌔ ㏿
½ ¼ ¾ ² ³ ¹ ª º µ ¨ ¯ ´ ¸ ΅ ˜
ﷺ ﷽ ﻷ ﻹ
e\u0301te\u0301 A\u030a n\u0303 c\u0327 u\u0308 o\u0308\u0304
\u0301leading mark
a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a\u030b
Z̷̡̛͚̟a̸l̵̗͝g̶o̴
Å Å Å Ω Ω ς σ
각 \u1100\u1161\u11a8 \u1100\u1161 \u1112\u1162\u11ab 한국어
\u1100\u1100\u1161\u1161\u11a8\u11a8
が か\u3099 ガ
日本語の文章です。漢字とかな、カタカナ。
中文文本，没有空格。你好世界！
ภาษาไทยไม่มีช่องว่าง
नमस्ते दुनिया क्षत्रिय र्क
বাংলা తెలుగు தமிழ் മലയാളം ଓଡ଼ିଆ
العربية من اليمين إلى اليسار ١٢٣
עברית שָׁלוֹם
\u202eright to left\u202c
русский текст ёлка й
Ελληνικά κείμενα
Tiếng Việt có dấu
ÀÉÎÕÜ àéîõü ß ẞ ĳ ŉ ǆ
👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇫🇷🇯 🇩
😀😃😄 ❤️ ☎ ☎︎ ©️ ®
👨\u200d \u200d👩 👨\u0301\u200d👩 👨\u200d\u200d👩
क\u094d\u200dष क\u094dष क\u200dष क\u094d\u0301ष
\u0600\u0661 \u06dd1 \u0890a
\U0001d400\U0001d401 \U0001f100 \U0002f800 \U000e0041\U000e007f
\ufffd \ufffe \uffff \U0010ffff \ue000
<extra_id_0>
<extra_id_0> <extra_id_1><extra_id_9>
text<extra_id_0>text <extra_id_3> text  <extra_id_10> <extra_id_99>
 <extra_id_0>  x  <e>   y
<extra_id_ <extra_id_0 extra_id_0> <<extra_id_0>>
</s>
a </s> b</s></s> c
<pad><unk></s><s>
Ab c Ab  c ab c ①x 1x  1x a z  z
<sep><a b> ab abab <a  b> é e\u0301 <ctl> <sep
▁ ▁▁ a▁b ▁a ▁ a
▁▁▁▁
<0x41><0x0A><0xE3>
aaaaaaaaaaaaaaa aaaa aa a
www.gnu.org wwwwww wwww
-- --- ---- a--b — ...... .........
100000000 3.14159 1,000,000 0x1F 1e-10
C:\\Users\\x \\n \\u0041 {"a": [1, 2]} <html lang="en">&amp;</html>
def f(x):    return x ** 2  # comment
https://example.org/path?query=1&other=%20#fragment
UPPER lower MiXeD camelCase snake_case kebab-case
don't can’t “quotes” ‘single’ «guillemets» „low“
€ $ £ ¥ ₿ % ‰ ° ± × ÷ ≤ ≥ ≠ ∞ √ ∑ ∫
→ ← ↑ ↓ ⇒ ⇔ • ‣ … – — ― ‑
""".split("\n")[1:-1]

BYTES = [b"", b" ", b"  ", b"\t", b"\n", b"\0", b"a\0b", b"\0\0", b" \0 ", b"\xff", b"\xff\xfe abc", b"abc\x80", b"\xc3", b"\xc3(", b"\xe3\x81",
         b"\xe3\x81 \xe3", b"\xed\xa0\x80\xed\xb0\x80", b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf0\x9f", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe0\x80\xaf",
         b"\xf8\x88\x80\x80\x80", b"\xfc\xfd\xfe\xff", b"caf\xe9 na\xefve", "é".encode()[:1] + "é".encode(), b"</s>\xff<extra_id_0>\xc3"]

PARTS = ["a", "ab", "Ab c", "b", "the", " ", "  ", "\t", "\n", "\r", "\r\n", "\u3000", "é", "e\u0301", "\u0301", "①", "①x", "1x", " z", "<extra_id_0>",
         "<extra_id_3>", "<e>", "<e", "</s>", "<unk>", "▁", "▁▁", "\0", "ﬁ", "½", "ﷺ", "\u200b", "\u200d", "👨", "🇩", "क", "\u094d", "각", "\u1100",
         "\u1161", "\u11a8", "--", "-", "aaaa", "ww", "\u0001", "\u02dc", "\u0385", "\u0600", "語", "ツ", "я", "<sep>", "<a b>"]


def character(draw):
    """Return a random character; lower code points are more frequent."""
    limit = draw.choice([0x80, 0x800, 0x3100, 0x10000, 0x110000])
    c = draw.randrange(limit)
    return chr(c) if not 0xD800 <= c < 0xE000 else "\ud7ff"


def random_texts(n, seed):
    """Return n strings of random characters and of parts that are difficult in combination."""
    draw = random.Random(seed)
    for k in range(n):
        yield "".join(draw.choice(PARTS) if k % 2 or draw.random() < 0.2 else character(draw) for _ in range(draw.randrange(1, 14)))


def hard_texts():
    words = ["x" * 300, "é" * 150, "語" * 100, "ab" * 150, " " * 100, "▁" * 60, "<extra_id_0>" * 20]
    return [t.encode() for t in TEXTS] + BYTES + [w.encode() for w in words] + [t.encode() for t in random_texts(150, 1)]


SPECIAL = ["</s>", "<pad>", "<unk>", "<extra_id_0>", "<extra_id_1>", "<extra_id_9>", "<x>", "<e>", "<sep>", "<y>", "<ctl>", "<end>", "<mask>", "the",
           "is", "Ab c", "①x"]
AROUND = ["", "", " ", "  ", "\t", "\n", "\r\n", "\xa0", "\u3000", "\u200b", "\u0301", "▁", "a", "the ", "é", "語", "ﬁ", "👨\u200d", "_", "\u0661", "-",
          "\x85", "\u2028", "\x1c", "<", ">", "w"]


def special_texts():
    """Return strings in which special and added tokens are at the start and the end, doubled, and beside all kinds of characters."""
    texts = [form.format(s) for s in SPECIAL for form in ("{0}", "{0}{0}", " {0}", "{0} ", "  {0}  ", "a {0} b", "a{0}b", "a  {0}  b", "é{0}\n{0}", "{0} {0}")]
    draw = random.Random(9)
    return texts + ["".join(draw.choice(AROUND) + draw.choice(SPECIAL) for _ in range(draw.randrange(1, 5))) + draw.choice(AROUND) for _ in range(250)]


WORDPIECE = """
Café NAÏVE straße İstanbul ĲSSEL ΑΣΣΟΣ
ﬁne ½ ａｂ Ａ！
한글 값 \u1112\u1161\u11ab 日本語abc漢字 \U00020000x\U0002f800 カタカナ ひらがな
e\u0323\u0301 e\u0301\u0323 \u0344\u0345\u0301 q\u0307\u0323\u0334 \u1e9b\u0323 \u0f73\u0f71 \u212b\u2126
x\u16ff0\u0301 \U0001d15e\U0001d165 \u302e\u302f\u0301 \u0b48\u09cb
a\ufffdb\u00adc\u200bd\u2060e\ue000f\u0378g\U000f0000h\u0000i\u0085j\u000bk
a\u00a0b\u3000c\u2028d\u2029e\u1680f\u202fg
!a"b#c$d%e&f'g(h)i*j+k,l-m.n/o:p;q<r=s>t?u@v[w\\x]y^z_a`b{c|d}e~f
«a» „b“ c…d 、。 ¡¿ § ¶ · ‿ ⸺ ﹁ 〝 \u2e52 \u1b5a
[CLS] a [SEP] b[MASK]c [UNK][PAD] [cls] [ MASK ] ##a a##b
<s> a </s> b<mask>c  <mask>  d [UNK]<pad> <mask\u3000> \u3000<mask>
 <e>  x <e>\ty Ab c ab c AB C Ａb c the \u0301 the, other the_ theＥ x  e x \u2003Ｅ x
"""


def wordpiece_texts():
    """Return the texts that are UTF-8, and those on the limits of WordPiece."""
    words = ["x" * 100, "x" * 101, "é" * 100, "é" * 101, "가" * 50, "語" * 300, "e\u0301" * 100, "a\u0323" * 60 + "\u0301" * 80]
    texts = [*WORDPIECE.split("\n")[1:-1], WORDPIECE, *words, *("a " + w + " b" for w in words), *random_texts(150, 2)]
    texts += [s.replace("</s>", draw) for draw, s in zip(["[MASK]", "<mask>", "<s>", "[SEP]"] * 40, special_texts()[::3])]
    return [t.encode() for t in texts] + [t for t in hard_texts() if t.decode("utf-8", "ignore").encode() == t]


BPE = """
it's It'S IT'S we'll WE'LL I'd I'm you're they've 'll'l 's's ''s 'ſ 'ſ' don't'd l'homme 're're 'v 'r
a  b   c    d \u00a0e\u00a0\u00a0f\u3000 \u3000g \u2003\u2003h
a\n b\n\n c \n\n  d\r\n\r\n e\n
x \t y\t\tz \n
1234567 12 123 1a2b3 ½² ⅧⅨ ١٢٣٤ 一二三 ①②③④ 1,234.56
a!!b ??c ... d!\n\n e?! \r\nf --g  --h \n--
_a __b a_b $x #y @z (a) [b] {c} <d>
e\u0301 E\u0301\u0323 \u0344 a\u0301\u0327 \u212b \u2126 \u1100\u1161\u11a8 \u1100\u1161\u1100 \uac00\u11a8 \u0958 \u0f73 q\u0307\u0323
\u0301\u0327 a\u0328\u0301\u0301 \u0b47\u0b3e \u09c7\u0300\u09be \u1025\u102e \u0dd9\u0dcf\u0dca \U00011131\U00011127 \U0001d15e
[CLS] a [SEP] b [MASK]c  [MASK]  <mask> x   <mask>
def f(x):\n    return x\n        y
"""


def bpe_texts():
    """Return the texts that are UTF-8, and those on the limits of the regular expressions of byte-level BPE."""
    draw = random.Random(5)
    parts = ["'s", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "\u3000", "a", "word", "É", "e\u0301", "12", "½", "1234", "!", "--", "語", "_", "\u0301"]
    texts = ["".join(draw.choice(parts) for _ in range(draw.randrange(1, 12))) for _ in range(150)]
    return [t.encode() for t in [*BPE.split("\n")[1:-1], BPE, *texts]] + wordpiece_texts()
