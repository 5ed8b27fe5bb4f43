/* test_tokenizer_made.c -- small tokenizer.json files that the test writes: what their parts mean for pieces, places
 * and texts, and which are refused. Pieces, places and decoded texts were compared with those of `tokenizers` 0.23.3.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokenizer/made.h"
#include "tests/starve.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/compact.h"
#include "tokenizer/graphemes.h"
#include "tokenizer/parts.h"
#include <math.h>

#define BPE(steps, vocab, merges) "{" steps ",`model`:{`type`:`BPE`,`vocab`:{" vocab "},`merges`:[" merges "]}}"
#define BYTES(regex)              "`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:" regex "}"
#define UNIGRAM(steps, vocab)     "{" steps "`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`,0]," vocab "]}}"
#define WORDPIECE(steps, vocab)                                                                                        \
    "{" steps "`model`:{`type`:`WordPiece`,`unk_token`:`?`,`continuing_subword_prefix`:`##`,"                          \
    "`max_input_chars_per_word`:100,`vocab`:{`?`:0," vocab "}}}"

/* Words of the regular expressions: without a word's end between them, two pieces would be merged. */
static void regular_expressions_split_words(void **state)
{
#define VOCAB                                                                                                          \
    "`'`:0,`\xc3\x85`:1,`\xc2\xbf`:2,`x`:3,`l`:4,`\xc4\x8d`:5,`\xc4\x8a`:6,`1`:7,`2`:8,`\xc2\xbfx`:9,`'l`:10,"         \
    "`\xc4\x8dx`:11,`\xc4\x8ax`:12,`12`:13"
#define MERGES "`\xc2\xbf x`,`' l`,`\xc4\x8d x`,`\xc4\x8a x`,`1 2`"
#define SPLIT(numbers)                                                                                                 \
    "`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`:{`Regex`:`(?i:'s|'t|'re|'ve|'m|"    \
    "'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" numbers "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"            \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,"          \
    "`add_prefix_space`:false,`use_regex`:false}]}"
#define LONG_S "\xc5\xbf" /* U+017F: its bytes are the pieces U+00C5 and U+00BF */
    static const struct {
        const char *text, *gpt2, *llama3, *qwen2;
    } cases[] = {
        /* the long s is an s in the contraction of any case, so the word ends before x */
        {"'" LONG_S "x", "'|\xc3\x85|\xc2\xbfx", "'|\xc3\x85|\xc2\xbf|x", "'|\xc3\x85|\xc2\xbf|x"},
        {"x" LONG_S "x", "x|\xc3\x85|\xc2\xbfx", "x|\xc3\x85|\xc2\xbfx", "x|\xc3\x85|\xc2\xbfx"},
        {"x'l", "x|'|l", "x|'l", "x|'l"}, /* half of 'll is no contraction */
        {"x'", "x|'", "x|'", "x|'"},
        {"\rx", "\xc4\x8d|x", "\xc4\x8d|x", "\xc4\x8d|x"}, /* a line end is no first character of a word */
        {"\nx", "\xc4\x8a|x", "\xc4\x8a|x", "\xc4\x8a|x"},
        {"12", "12", "12", "1|2"}, /* one digit for each word in Qwen 2 */
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        json_splits(BPE(BYTES("true"), VOCAB, MERGES), cases[k].text, cases[k].gpt2);
        json_splits(BPE(SPLIT("\\\\p{N}{1,3}"), VOCAB, MERGES), cases[k].text, cases[k].llama3);
        json_splits(BPE(SPLIT("\\\\p{N}"), VOCAB, MERGES), cases[k].text, cases[k].qwen2);
    }
    /* a text ends with its size, whatever follows */
    assert_int_equal(tok_pattern_word(TOK_SPLIT_GPT2, "'ll", 3), 3);
    assert_int_equal(tok_pattern_word(TOK_SPLIT_GPT2, "'ll", 2), 1);
    refuse_json(UNIGRAM(SPLIT("\\\\p{N}") ",", "[`a`,0]"), NULL, "the model must be BPE");
    refuse_json(UNIGRAM("`pre_tokenizer`:{`type`:`Split`,`pattern`:{`Regex`:`'(?:[sdmt]|ll|ve|re)| ?\\\\p{L}+| ?"
                        "\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+`},`behavior`:`Isolated`},",
                        "[`a`,0]"),
                NULL, "pre_tokenizer ByteLevel or Split is not supported with this model");
}

/* Grapheme clusters, which a Precompiled normalizer replaces as a whole (UAX #29). */
static void grapheme_clusters_end_as_in_unicode(void **state)
{
#define L          "\xe1\x84\x80" /* Hangul U+1100, U+1161, U+11A8, U+AC00 and U+AC01 */
#define V          "\xe1\x85\xa1"
#define T          "\xe1\x86\xa8"
#define LV         "\xea\xb0\x80"
#define LVT        "\xea\xb0\x81"
#define PREPEND    "\xd8\x80"     /* U+0600 */
#define CONSONANT  "\xe1\x80\x80" /* Myanmar KA and VIRAMA */
#define LINKER     "\xe1\x80\xb9"
#define ACUTE      "\xcc\x81"
#define ZWJ        "\xe2\x80\x8d"
#define PICTOGRAPH "\xc2\xa9"
#define FLAG       "\xf0\x9f\x87\xa6" /* regional indicator A */
    static const struct {
        const char *text;
        int64_t size; /* of the first cluster */
    } cases[] = {
        {L V T "a", 9},
        {L L LV, 9},
        {LV V, 6},
        {V V, 6},
        {LV T T, 9},
        {LVT T, 6},
        {LVT V, 3},
        {T V, 3},
        {"a" V, 1},
        {PREPEND L, 5},
        {PREPEND V, 5},
        {PREPEND LV, 5},
        {PREPEND T, 5},
        {PREPEND CONSONANT, 5},
        {PREPEND PICTOGRAPH, 4},
        {PREPEND FLAG, 6},
        {PREPEND "a", 3},
        {PREPEND "\n", 2},
        {FLAG FLAG FLAG, 8},
        {CONSONANT LINKER CONSONANT, 9},
        {"\xe0\xa4\x95\xe0\xa5\x8d\xe0\xa4\x96", 9}, /* Devanagari KA, VIRAMA, KHA */
        {CONSONANT LINKER ACUTE CONSONANT, 11},
        {CONSONANT ACUTE CONSONANT, 5},
        {PICTOGRAPH ZWJ PICTOGRAPH, 7},
        {PICTOGRAPH ZWJ ZWJ PICTOGRAPH, 8},
        {PICTOGRAPH ZWJ ACUTE PICTOGRAPH, 7},
        {PICTOGRAPH ZWJ ACUTE ZWJ PICTOGRAPH, 10},
        {"a" ZWJ PICTOGRAPH, 4},
        {"\r\n\n", 2},
    };
    tok_graphemes g;
    (void)state;
    assert_true(tok_graphemes_open(&g));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t size = tok_grapheme(&g, cases[k].text, (int64_t)strlen(cases[k].text));
        if (size != cases[k].size)
            fail_msg("case %zu: %d bytes", k, (int)size);
    }
    tok_graphemes_free(&g);
}

/* Scores with exponents for which a power of ten is no double. */
static void scores_may_be_tiny_or_huge(void **state)
{
    (void)state;
    json_splits(UNIGRAM("", "[`a`,2e-310],[`aa`,3e-310]"), "aa", "a|a"); /* if they became 0: aa */
    json_splits(UNIGRAM("", "[`a`,2e-310],[`aa`,5e-310]"), "aa", "aa");
    json_splits(UNIGRAM("", "[`a`,-1.23456789012345e-295],[`aa`,-3e-295]"), "aa", "a|a");
    json_splits(UNIGRAM("", "[`a`,-1.23456789012345e-295],[`aa`,-2e-295]"), "aa", "aa");
    json_splits(UNIGRAM("", "[`a`,1e305],[`aa`,1.5e305]"), "aa", "a|a");
    json_splits(UNIGRAM("", "[`a`,1e305],[`aa`,2.5e305]"), "aa", "aa");
}

/* In the compact form, a score may have any bits. */
static void scores_of_the_compact_form_are_checked(void **state)
{
    char *json = quoted(UNIGRAM("", "[`a`,-1]"));
    const double scores[] = {INFINITY, -INFINITY, NAN, -2};
    file made;
    tokenizer *t;
    (void)state;
    assert_int_equal(tok_compact(json, (int64_t)strlen(json), NULL, &made.bytes, &made.size, err), TOK_OK);
    assert_true(made.size > TOK_COMPACT_HEAD + 16);
    for (int k = 0; k < 4; k++) {
        memcpy(made.bytes + TOK_COMPACT_HEAD + 8, &scores[k], 8);
        const tok_status status = tok_open_memory(&t, made.bytes, made.size, "made", 0, err);
        if (k < 3)
            check_refused(status, t, k < 2 ? "inf; it must be finite" : "nan; it must be finite");
        else
            assert_int_equal(status, TOK_OK);
        assert_true(k == 3 || strstr(err, "model.vocab[1] has the score") != NULL);
    }
    tok_close(t);
    free(made.bytes);
    free(json);
}

static void vocabularies_have_pieces(void **state)
{
    (void)state;
    refuse_json("{`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[]}}", NULL, "model.vocab has 0 pieces; it must have 1");
    refuse_json("{`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[``,0]]}}", NULL, "model.vocab has only empty pieces");
    refuse_json("{`model`:{`type`:`Unigram`,`unk_id`:0,`byte_fallback`:1,`vocab`:[[`a`,0]]}}", NULL,
                "\"byte_fallback\" that is not true or false");
    tokenizer *t = json_opened(WORDPIECE("", "`a`:1,`b`:5"), NULL); /* numbers may have gaps */
    assert_int_equal(tok_size(t), 6);
    assert_null(tok_piece(t, 4, NULL));
    assert_string_equal(tok_piece(t, 5, NULL), "b");
    check_text(t, (int32_t[]){1, 4, 5}, 3, false, "a b");
    tok_close(t);
}

/* An unknown character becomes its bytes only if each of them has a piece. */
static void bytes_need_all_their_pieces(void **state)
{
#define FALLBACK(pieces)                                                                                               \
    "{`model`:{`type`:`Unigram`,`unk_id`:0,`byte_fallback`:true,`vocab`:[[`<unk>`,0],[`a`,-1]," pieces "]}}"
    (void)state;
    json_splits(FALLBACK("[`<0xC3>`,-9],[`<0xA9>`,-9]"), "a\xc3\xa9", "a|<0xC3>|<0xA9>");
    json_splits(FALLBACK("[`<0xC3>`,-9],[`<0xA9>`,-9]"), "a\xc3\xa8", "a|<unk>");
}

/* ---- BPE */

static void settings_of_bpe_change_the_pieces(void **state)
{
#define ALPHABET "`a`:0,`b`:1,`c`:2,`?`:3,`\xc4\xa0`:4"
    (void)state;
    json_splits(BPE(BYTES("true"), ALPHABET ",`ab`:5", "`#version: 0.2`,`a b`"), "abc", "ab|c");
    json_splits(BPE(BYTES("false"), ALPHABET ",`a\xc4\xa0`:5", "`a \xc4\xa0`"), "a b", "a\xc4\xa0|b");
    json_splits(BPE(BYTES("true"), ALPHABET ",`a\xc4\xa0`:5", "`a \xc4\xa0`"), "a b", "a|\xc4\xa0|b");
    json_splits(BPE(BYTES("true"), ALPHABET, "],`unk_token`:`?`,`fuse_unk`:false,`x`:["), "axyza", "a|?|?|?|a");
    json_splits(BPE(BYTES("true"), ALPHABET, "],`unk_token`:`?`,`fuse_unk`:true,`x`:["), "axyza", "a|?|a");
    /* a word that is a piece, and one that only begins a piece */
    json_splits(BPE(BYTES("true"), ALPHABET ",`abc`:5", "],`ignore_merges`:true,`x`:["), "abc", "abc");
    json_splits(BPE(BYTES("true"), ALPHABET ",`abc`:5", "],`ignore_merges`:true,`x`:["), "ab", "a|b");
    /* a space before the text */
    json_splits(BPE("`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:true}", ALPHABET, ""), "ab",
                "\xc4\xa0|a|b");
    json_splits(BPE("`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:true}", ALPHABET, ""), " ab",
                "\xc4\xa0|a|b");
    /* settings without effect */
    json_splits(
        BPE(BYTES("true"), ALPHABET, "],`dropout`:0.0,`continuing_subword_prefix`:``,`end_of_word_suffix`:``,`x`:["),
        "ab", "a|b");
    refuse_json(BPE(BYTES("true"), ALPHABET, "],`byte_fallback`:1,`x`:["), NULL,
                "\"byte_fallback\" that is not true or false");
#define TEN "0123456789"
    refuse_json(BPE(BYTES("true"), ALPHABET, "`a " TEN TEN TEN TEN TEN "more`"), NULL,
                "model.merges[0] is \"a " TEN TEN TEN TEN TEN "\"; model.vocab must have its second piece");
    refuse_json(BPE(BYTES("true"), ALPHABET, "`" TEN TEN TEN TEN TEN "more a`"), NULL,
                "model.merges[0] is \"" TEN TEN TEN TEN TEN " a\"; model.vocab must have its first piece");
}

/* An unk_token that is no piece is allowed if every byte has a piece. */
static void an_unknown_unk_token_needs_all_bytes(void **state)
{
    const file f = load(DATA "roberta.json");
    char *found = strstr(f.bytes, "\"unk_token\":null");
    tokenizer *t;
    (void)state;
    assert_non_null(found);
    memcpy(found, "\"unk_token\":\"no\"", 16);
    if (tok_open_memory(&t, f.bytes, f.size, "made", 0, err) != TOK_OK)
        fail_msg("%s", err);
    int32_t *ids;
    int64_t n;
    assert_int_equal(tok_encode(t, "\x01\xff", 2, false, &ids, &n, err), TOK_OK);
    for (int64_t k = 0; k < n; k++)
        assert_true(ids[k] >= 0 && ids[k] < tok_size(t));
    check_text(t, ids, n, false, "\x01\xef\xbf\xbd");
    free(ids);
    tok_close(t);
    free(f.bytes);
}

/* ---- places in the text */

/* Check the pieces of a text and their places, such as "a 0 1|b 1 2". */
static void check_places(const char *json, const char *text, const char *wanted)
{
    tokenizer *t = json_opened(json, NULL);
    char found[500] = "", *at = found;
    tok_encoding e;
    if (tok_encode_pair(t, (tok_string){text, (int64_t)strlen(text)}, NULL, 0, &e, err) != TOK_OK)
        fail_msg("%s", err);
    for (int64_t k = 0; k < e.n; k++)
        at += sprintf(at, "%s%s %d %d", k > 0 ? "|" : "", tok_piece(t, e.ids[k], NULL), (int)e.spans[k].begin,
                      (int)e.spans[k].end);
    assert_string_equal(found, wanted);
    tok_encoding_free(&e);
    tok_close(t);
}

/* trim_offsets removes the spaces at the ends of a token from its place. */
static void trimmed_places_stay_in_the_text(void **state)
{
#define TRIMMED(content, first)                                                                                        \
    BPE("`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`x`},`content`:`" content                                  \
        "`}," BYTES("true") ",`post_processor`:{`type`:`ByteLevel`,`trim_offsets`:true,`add_prefix_space`:" first "}", \
        "`a`:0,`b`:1,`\xc4\xa0`:2,`\xc4\xa0"                                                                           \
        "b`:3,`\xc4\xa0\xc4\xa0`:4,`\xc4\xa0\xc4\xa0\xc4\xa0`:5,`\xc3\xaf`:6,`\xc2\xbf`:7,`\xc2\xbd`:8",               \
        "`\xc4\xa0 b`,`\xc4\xa0 \xc4\xa0`,`\xc4\xa0\xc4\xa0 \xc4\xa0`")
    (void)state;
    /* a second token may begin at 0, too: its space counts as inserted */
    check_places(TRIMMED("a b", "true"), "x",
                 "a 0 1|\xc4\xa0"
                 "b 0 1");
    check_places(TRIMMED("a b", "false"), "x",
                 "a 0 1|\xc4\xa0"
                 "b 1 1");
    /* more spaces than characters */
    check_places(TRIMMED("   ", "false"), "x", "\xc4\xa0\xc4\xa0\xc4\xa0 1 1");
    /* a place at the end of a text that is not UTF-8 */
    check_places(TRIMMED("", "false"), "\xff ", "\xc3\xaf 0 1|\xc2\xbf 0 1|\xc2\xbd 0 1|\xc4\xa0 2 2");
}

static void write_base64(const char *bytes, int64_t size, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int64_t at = 0; at < size; at += 3) {
        uint32_t bits = 0;
        for (int64_t k = at; k < at + 3; k++)
            bits = bits << 8 | (k < size ? (unsigned char)bytes[k] : 0);
        for (int64_t k = 0; k < 4; k++)
            *to++ = at + k - 1 < size ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *to = 0;
}

/* Write a tokenizer.json with a Precompiled normalizer; "a" becomes `grown`, and "r" nothing. */
static void write_precompiled(char *json, const char *grown, const char *steps, const char *vocab)
{
    char map[2000], text[3000];
    write_base64(map, write_charsmap(map, grown), text);
    sprintf(json,
            "{`normalizer`:{`type`:`Precompiled`,`precompiled_charsmap`:`%s`},%s`model`:{`type`:`Unigram`,`unk_id`:0,"
            "`vocab`:[[`<unk>`,0],%s]}}",
            text, steps, vocab);
}

#define FIRST                                                                                                          \
    "`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`WhitespaceSplit`},{`type`:`Metaspace`,`replacement`" \
    ":"                                                                                                                \
    "`" META "`,`prepend_scheme`:`first`}]},"

/* A character that a rule inserted takes the place of the next one that is removed. */
static void inserted_characters_take_the_place_of_removed_ones(void **state)
{
    static char json[6000];
    (void)state;
    write_precompiled(json, "xy", "", "[`x`,-1],[`y`,-1],[`b`,-1]");
    check_places(json, "ab", "x 0 1|y 0 1|b 1 2");
    check_places(json, "arb", "x 0 1|y 1 2|b 2 3");
    check_places(json, "brb", "b 0 1|b 2 3");
    /* so it no longer comes from the first character of the text, to which prepend_scheme "first" refers */
    write_precompiled(json, " y", FIRST, "[`" META "`,-1],[`y`,-1],[`b`,-1]");
    json_splits(json, "ab", META "|y|b");
    json_splits(json, "arb", "y|b");
    /* later characters of the first cluster do not change what comes from the first one */
    json_splits(json, "b\xcc\x81\xcc\x80 b", META "|b|y|b");
}

/* The place of a replacement in the middle of a character is none. */
static void replacements_begin_with_a_character(void **state)
{
    char bytes[1000];
    (void)state;
    for (uint32_t place = 0; place < 4; place++) {
        const int64_t size = write_charsmap(bytes, "\xc3\xa9y");
        const uint32_t leaf = place | 1u << 31;
        memcpy(bytes + 4 * (1 + ('a' ^ 1)), &leaf, 4);
        tok_charsmap map;
        assert_int_equal(tok_charsmap_open(&map, bytes, size, "it", err), TOK_OK);
        const tok_rule rule = tok_charsmap_find(&map, "a", 1, true);
        assert_int_equal(rule.length, place == 1 ? 0 : 1);
        if (place != 1)
            assert_string_equal(rule.text, place == 0 ? "\xc3\xa9y" : place == 2 ? "y" : "");
        tok_charsmap_free(&map);
    }
}

/* ---- steps */

static void normalizers_change_the_text(void **state)
{
#define WHITE "`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:`\\\\s{2,}|[\\\\n\\\\r\\\\t]`},`content`:`_`},"
#define NFC   "`normalizer`:{`type`:`NFC`},"
    (void)state;
    json_splits(UNIGRAM(WHITE, "[`a`,-1],[`_`,-1],[` `,-1]"), "a\ra\ta\na a  a", "a|_|a|_|a|_|a| |a|_|a");
    /* characters that do not compose: a syllable and a consonant that is no final one; "<" and an accent */
    json_splits(UNIGRAM(NFC, "[`\xea\xb0\x80`,-1],[`\xe1\x87\x83`,-1],[`\xea\xb0\x81`,-1],[`\xe1\x86\xa8`,-1]"),
                "\xea\xb0\x80\xe1\x87\x83\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x80|\xe1\x87\x83|\xea\xb0\x81");
    json_splits(UNIGRAM(NFC, "[`<`,-1],[`\xcc\x81`,-1],[`\xe2\x89\xae`,-1]"), "<\xcc\x81<\xcc\xb8",
                "<|\xcc\x81|\xe2\x89\xae");
    json_splits(UNIGRAM("`pre_tokenizer`:{`type`:`WhitespaceSplit`},", "[`a`,-1],[`\xe2\x81\x9f`,-1]"),
                "a\xe2\x81\x9f"
                "a",
                "a|a"); /* U+205F is white space */
    /* each character of a replacement comes from the first character of the text, if the pattern does */
    json_splits(UNIGRAM("`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`a`},`content`:` b`}," FIRST,
                        "[`" META "`,-1],[`b`,-1],[`c`,-1]"),
                "ac a", META "|b|c|b");
}

static void steps_that_are_not_supported_are_refused(void **state)
{
#define AROUND(type) "{`type`:`TemplateProcessing`,`single`:[{`Sequence`:{`id`:`A`,`type_id`:" type "}}]}"
    (void)state;
    refuse_json(UNIGRAM("`normalizer`:{`type`:`Sequence`,`normalizers`:["
                        "{`type`:`Precompiled`,`precompiled_charsmap`:`BAAAAAAAAAA=`},"
                        "{`type`:`Precompiled`,`precompiled_charsmap`:`BAAAAAAAAAA=`}]},",
                        "[`a`,0]"),
                NULL, "the normalizer has two Precompiled steps");
    refuse_json(UNIGRAM("`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:["
                        "{`type`:`WhitespaceSplit`},{`type`:`WhitespaceSplit`}]},",
                        "[`a`,0]"),
                NULL, "pre_tokenizer \"WhitespaceSplit\" is not supported");
    refuse_json(
        UNIGRAM("`post_processor`:{`type`:`Sequence`,`processors`:[" AROUND("0") ",{`type`:`ByteLevel`}]},", "[`a`,0]"),
        NULL, "post_processor \"ByteLevel\" is not supported");
    refuse_json(
        UNIGRAM("`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`x`}},{`Sequence`"
                ":{`id`:`A`}}],`special_tokens`:{`x`:{`ids`:[-1,0]}}},",
                "[`a`,0]"),
        NULL, "\"x\" of the post_processor has id -1");
    static const char *const types[] = {"-1", "2147483648", "7"};
    for (int k = 0; k < 3; k++) { /* a type that is no int32 is 0 */
        tok_encoding e;
        tokenizer *t = json_opened(k == 0   ? UNIGRAM("`post_processor`:" AROUND("-1") ",", "[`a`,0]")
                                   : k == 1 ? UNIGRAM("`post_processor`:" AROUND("2147483648") ",", "[`a`,0]")
                                            : UNIGRAM("`post_processor`:" AROUND("7") ",", "[`a`,0]"),
                                   NULL);
        assert_int_equal(tok_encode_pair(t, (tok_string){"a", 1}, NULL, 0, &e, err), TOK_OK);
        if (e.n != 1 || e.types[0] != (k == 2 ? 7 : 0))
            fail_msg("type_id %s gives %d", types[k], e.types[0]);
        tok_encoding_free(&e);
        tok_close(t);
    }
}

static void decoders_make_the_text(void **state)
{
#define DECODER(cleanup) "`decoder`:{`type`:`WordPiece`,`prefix`:`##`,`cleanup`:" cleanup "},"
    static const int32_t ids[] = {1, 2, 3};
    (void)state;
    tokenizer *t = json_opened(WORDPIECE(DECODER("true"), "`a`:1,`##b`:2,`.`:3"), NULL);
    check_text(t, ids, 3, false, "ab.");
    tok_close(t);
    t = json_opened(WORDPIECE(DECODER("false"), "`a`:1,`##b`:2,`.`:3"), NULL);
    check_text(t, ids, 3, false, "ab .");
    tok_close(t);
    t = json_opened(BPE(BYTES("true") ",`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:"
                                      "`c`},`content`:`b`},{`type`:`ByteLevel`}]}",
                        "`?`:0,`a`:1,`\xc4\xa0`:2,`c`:3", ""),
                    NULL);
    check_text(t, ids, 3, false, "a b");
    tok_close(t);
}

/* ---- added tokens */

static void added_tokens_are_normalized(void **state)
{
#define ADDED(list, steps) UNIGRAM("`added_tokens`:[" list "]," steps, "[`a`,-1],[`b`,-1]")
#define LOWER              "`normalizer`:{`type`:`Lowercase`},"
    (void)state;
    refuse_json(ADDED("{`id`:3,`content`:` `,`normalized`:true}",
                      "`normalizer`:{`type`:`Strip`,`strip_left`:true,`strip_right`:true},"),
                NULL, "the added token \" \" is empty after normalization (set \"normalized\": false)");
    tokenizer *t = json_opened(ADDED("{`id`:99,`content`:``},{`id`:3,`content`:`c`}", ""), NULL);
    check_pieces(t, "abc", false, "a|b|c"); /* an empty token is ignored, whatever its id */
    assert_int_equal(tok_size(t), 4);
    tok_close(t);
    /* <S> is read as <s> in a text, and skipped only if that is a special token */
    t = json_opened(ADDED("{`id`:3,`content`:`<s>`,`special`:true},{`id`:4,`content`:`<S>`,`normalized`:true,"
                          "`special`:true}",
                          LOWER),
                    NULL);
    check_text(t, (int32_t[]){1, 4, 2}, 3, true, "a b");
    assert_true(tok_is_special(t, 4));
    tok_close(t);
    t = json_opened(ADDED("{`id`:3,`content`:`<s>`},{`id`:4,`content`:`<S>`,`normalized`:true,`special`:true}", LOWER),
                    NULL);
    check_text(t, (int32_t[]){1, 4, 2}, 3, true, "a <s> b");
    tok_close(t);
    t = json_opened(ADDED("{`id`:3,`content`:`<S>`,`normalized`:true,`special`:true}", LOWER), NULL);
    check_text(t, (int32_t[]){1, 3, 2}, 3, true, "a <s> b");
    assert_false(tok_is_special(t, 3));
    assert_false(tok_is_special(t, -1));
    assert_false(tok_is_special(t, 4));
    tok_close(t);
}

/* A piece or an added token has at most a megabyte, and may grow to 64 times its size and a kilobyte. */
static void long_tokens_are_refused(void **state)
{
    enum { MOST = 1 << 20 };
    static char json[MOST + 1000], x[MOST + 2];
    (void)state;
    memset(x, 'x', MOST + 1);
    sprintf(json, UNIGRAM("`added_tokens`:[{`id`:2,`content`:`%s`}],", "[`a`,-1]"), x);
    refuse_json(json, NULL, "added_tokens[0] is too long");
    sprintf(json, WORDPIECE("", "`%s`:1"), x);
    refuse_json(json, NULL, "piece 1 of model.vocab has 1048577 bytes; it must have at most 1048576");
    x[1088 + 1] = 0;
    sprintf(json,
            ADDED("{`id`:3,`content`:`y`,`normalized`:true}",
                  "`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`y`},`content`:`%s`},"),
            x);
    refuse_json(json, NULL, "the normalizer turns the N bytes of the added token \"y\" into more than 64 N + 1024");
    x[1088] = 0;
    sprintf(json,
            ADDED("{`id`:3,`content`:`y`,`normalized`:true}",
                  "`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`y`},`content`:`%s`},"),
            x);
    json_splits(json, "aya", "a|y|a");
}

/* A short part of a text has its own limit, also after a long part. */
static void the_limit_is_that_of_each_part(void **state)
{
    enum { LONG = 8000 };
    static char json[2000], x[1088 + 2], text[LONG + 10];
    int32_t *ids;
    int64_t n;
    (void)state;
    memset(text, 'a', LONG);
    strcpy(text + LONG, "<s>y");
    for (int more = 0; more < 2; more++) {
        memset(x, 'b', 1088 + (size_t)more);
        sprintf(json,
                ADDED("{`id`:3,`content`:`<s>`}",
                      "`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`y`},`content`:`%s`},"),
                x);
        tokenizer *t = json_opened(json, NULL);
        assert_int_equal(tok_encode(t, text, LONG + 4, false, &ids, &n, err), more ? TOK_DAMAGED : TOK_OK);
        assert_int_equal(n, more ? 0 : LONG + 1 + 1088);
        free(ids);
        tok_close(t);
    }
}

/* Let each allocation fail. */
static void every_allocation_may_fail(void **state)
{
    static const char *const files[] = {
        BPE("`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:true}", "`a`:0,`\xc4\xa0`:1,`aa`:2", "`a a`"),
        UNIGRAM("", "[`a`,-1],[`aa`,-3]"), UNIGRAM("", "[`b`,-1]"),
        "{`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`,0],[`aaaaaaaaaaaaaaaaaaaa`,-1]]}}"};
    static char text[2000];
    (void)state;
    if (!STARVES)
        skip();
    memset(text, 'a', sizeof text);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char *json = quoted(files[k]);
        bool failed = true;
        tokenizer *t = NULL;
        for (long n = 1; failed; n++) {
            starve(n, false);
            const tok_status status = tok_open_memory(&t, json, (int64_t)strlen(json), "made", 0, err);
            failed = starve_end() >= n;
            assert_int_equal(status, failed ? TOK_FAILED : TOK_OK);
            assert_true(!failed || t == NULL);
        }
        for (int pair = 0; pair < 2; pair++) {
            failed = true;
            for (long n = 1; failed; n++) {
                tok_encoding e = {0};
                int32_t *ids = NULL;
                int64_t count = 0;
                starve(n, false);
                const tok_status status = pair ? tok_encode_pair(t, (tok_string){text, sizeof text}, NULL, 0, &e, err)
                                               : tok_encode(t, text, sizeof text, false, &ids, &count, err);
                failed = starve_end() >= n;
                assert_int_equal(status, failed ? TOK_FAILED : TOK_OK);
                assert_true(failed ? e.ids == NULL && ids == NULL && e.n + count == 0 : e.n + count > 0);
                free(ids);
                tok_encoding_free(&e);
            }
        }
        tok_close(t);
        free(json);
    }
}

/* ---- the rules of T5Tokenizer */

/* A file is told from T5's by one other part. */
static void files_that_differ_from_t5_in_one_part(void **state)
{
#define T5(words, end, decoder, model)                                                                                 \
    "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`WhitespaceSplit`}" words "]},`post_processor`:{"    \
    "`type`:`TemplateProcessing`,`single`:[{`Sequence`:{`id`:`A`}},{`SpecialToken`:{`id`:`" end "`}}],"                \
    "`special_tokens`:{`</s>`:{`ids`:[1]},`<pad>`:{`ids`:[0]}}},`decoder`:{`type`:`Sequence`,`decoders`:[" decoder     \
    "]},`model`:{" model "}}"
#define META_STEP "{`type`:`Metaspace`,`replacement`:`" META "`}"
#define PIECES    "`vocab`:[[`<pad>`,0],[`</s>`,0],[`<unk>`,0],[`" META "a`,-1]]"
#define NUMBERED                                                                                                       \
    "`type`:`WordPiece`,`unk_token`:`<unk>`,`continuing_subword_prefix`:`##`,`max_input_chars_per_word`:9,"            \
    "`vocab`:{`<pad>`:0,`</s>`:1,`<unk>`:2,`" META "a`:3}"
    static const struct {
        const char *json;
        bool t5;
    } cases[] = {
        {T5("," META_STEP, "</s>", META_STEP, "`unk_id`:2," PIECES), true},
        {T5("," META_STEP, "</s>", META_STEP, "`unk_id`:0," PIECES), false},
        {T5("," META_STEP, "</s>", META_STEP, "`unk_id`:2,`byte_fallback`:true," PIECES), false},
        {T5("," META_STEP, "</s>", META_STEP, NUMBERED), false},
        {T5("", "</s>", META_STEP, "`unk_id`:2," PIECES), false},
        {T5("," META_STEP, "<pad>", META_STEP, "`unk_id`:2," PIECES), false},
        {T5("," META_STEP, "</s>", META_STEP ",{`type`:`ByteFallback`}", "`unk_id`:2," PIECES), false},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tokenizer *t = json_opened(cases[k].json, NULL);
        if (tok_has_t5_rules(t) != cases[k].t5)
            fail_msg("case %zu: %d", k, tok_has_t5_rules(t));
        tok_close(t);
    }
    tokenizer *t = opened("bytes");
    assert_false(tok_has_t5_rules(t));
    tok_close(t);
}

/* T5Tokenizer takes the pieces and the first precompiled_charsmap, if the pieces begin words. */
static void t5_rules_need_certain_pieces(void **state)
{
#define MAPS(first)                                                                                                    \
    "`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`Precompiled`,`precompiled_charsmap`:`" first "`},"        \
    "{`type`:`Precompiled`,`precompiled_charsmap`:`*`}]},"
#define WITH(steps, pieces) "{" steps "`model`:{`type`:`Unigram`,`unk_id`:0," pieces "}}"
    const tok_beside t5 = beside_of(NULL, NULL, NULL, TOK_RULES_T5);
    (void)state;
    tokenizer *t = json_opened(WITH("", PIECES), &t5); /* without added_tokens */
    assert_true(tok_has_t5_rules(t));
    check_pieces(t, "a a", true, META "a|" META "a|</s>");
    tok_close(t);
    t = json_opened(WITH(MAPS("BAAAAAAAAAA="), PIECES), &t5); /* a map without rules; the second is not read */
    assert_true(tok_has_t5_rules(t));
    check_pieces(t, "a a", true, META "a|" META "a|</s>");
    tok_close(t);
    refuse_json(WITH(MAPS("*"), PIECES), &t5, "is not base64");
    refuse_json(WITH("", "`vocab`:[[`" META "`,0],[`a`,0]]"), &t5, "has 2 pieces; T5Tokenizer needs at least 3");
    t = json_opened(UNIGRAM("", "[`a`,-1],[`b`,-1],[`</s>`,0]"), &t5); /* no piece begins a word: the file's rules */
    assert_false(tok_has_t5_rules(t));
    check_pieces(t, "ab", true, "a|b");
    tok_close(t);
    t = json_opened(WORDPIECE("", "`a`:1,`##b`:2"), &t5);
    assert_string_equal(tok_model_name(t), "WordPiece");
    check_pieces(t, "ab", true, "a|##b");
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_expressions_split_words),
        cmocka_unit_test(grapheme_clusters_end_as_in_unicode),
        cmocka_unit_test(scores_may_be_tiny_or_huge),
        cmocka_unit_test(scores_of_the_compact_form_are_checked),
        cmocka_unit_test(vocabularies_have_pieces),
        cmocka_unit_test(bytes_need_all_their_pieces),
        cmocka_unit_test(settings_of_bpe_change_the_pieces),
        cmocka_unit_test(an_unknown_unk_token_needs_all_bytes),
        cmocka_unit_test(trimmed_places_stay_in_the_text),
        cmocka_unit_test(inserted_characters_take_the_place_of_removed_ones),
        cmocka_unit_test(replacements_begin_with_a_character),
        cmocka_unit_test(normalizers_change_the_text),
        cmocka_unit_test(steps_that_are_not_supported_are_refused),
        cmocka_unit_test(decoders_make_the_text),
        cmocka_unit_test(added_tokens_are_normalized),
        cmocka_unit_test(long_tokens_are_refused),
        cmocka_unit_test(the_limit_is_that_of_each_part),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(files_that_differ_from_t5_in_one_part),
        cmocka_unit_test(t5_rules_need_certain_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
