/* proteins.c -- protein language models: recognizes their families, and converts residues to tokens with a table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/fasta.h"
#include "t5/model.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 26, STOP = LETTERS, TABLE = LETTERS + 1, UNKNOWN = 2, MAX_PIECES = 1000 };
#define STANDARD "ACDEFGHIKLMNPQRSTVWYX" /* every family has a token for these */

/* A family of protein models. The first one whose pieces the tokenizer has is the family of the model.
 * Sources: prott5_embedder.py of ProtTrans, predict_3Di_encoderOnly.py of ProstT5, tokenizer.json of Ankh. */
typedef struct family {
    const char *name;
    const char *marker;   /* begins the piece of each residue */
    const char *prefix;   /* piece before the residues; NULL: none */
    int32_t prefix_token; /* its usual number */
    const char *replaced; /* pairs of letters: the first is read as the second; ? is <unk> */
} family;

static const family families[] = {
    {"prostt5", "▁", "<AA2fold>", 149, "BDZEJLUXOX"},
    {"prott5", "▁", NULL, -1, "UXZXOXJX"},
    {"ankh", "", NULL, -1, "J?"},
};
enum { FAMILIES = sizeof families / sizeof *families };
static const char usual[] = "ALGVSREDTIPKFQNYMHWCXBOUZ"; /* the residues of tokens 3, 4, … in all families */

/* The token of each letter and of '*', and whether it is that of another letter. */
typedef struct alphabet {
    int32_t tokens[TABLE], prefix;
    bool replaced[TABLE];
} alphabet;

/* Return the token of a letter in the tokenizer of a model, or -1. */
static int32_t token_of(const rp_t5 *m, const family *f, char letter)
{
    char piece[8];
    const int n = snprintf(piece, sizeof piece, "%s%c", f->marker, letter);
    return tok_id(m->tokenizer, piece, n);
}

/* Return true if the tokenizer has the pieces of a family. Write the first missing one to `missing`. */
static bool has_pieces(const rp_t5 *m, const family *f, char missing[16])
{
    for (const char *c = STANDARD; *c != 0; c++)
        if (token_of(m, f, *c) < 0) {
            snprintf(missing, 16, "%s%c", f->marker, *c);
            return false;
        }
    if (f->prefix != NULL && tok_id(m->tokenizer, f->prefix, (int64_t)strlen(f->prefix)) < 0) {
        snprintf(missing, 16, "%s", f->prefix);
        return false;
    }
    return true;
}

static const family *recognize(const rp_t5 *m)
{
    char missing[FAMILIES][16] = {""};
    if (m == NULL || m->tokenizer == NULL) {
        t5_fail(
            RP_E_UNSUPPORTED,
            "the family of the model is unknown: %s (give it, in the command with --family: prott5, prostt5 or ankh)",
            m == NULL             ? "model is NULL"
            : m->why_no_tokenizer ? m->why_no_tokenizer
                                  : "it has no tokenizer");
        return NULL;
    }
    if (tok_size(m->tokenizer) > MAX_PIECES) {
        t5_fail(RP_E_UNSUPPORTED,
                "it is not a model of proteins: its tokenizer has %d pieces, and those of proteins have about 150 "
                "(use a ProtT5, ProstT5 or Ankh model)",
                (int)tok_size(m->tokenizer));
        return NULL;
    }
    for (int k = 0; k < FAMILIES; k++)
        if (has_pieces(m, &families[k], missing[k]))
            return &families[k];
    t5_fail(RP_E_UNSUPPORTED,
            "it is not a model of proteins: its tokenizer lacks the piece %s of ProstT5, %s of ProtT5 and %s of Ankh "
            "(give the family as prott5, prostt5 or ankh if you know it)",
            missing[0], missing[1], missing[2]);
    return NULL;
}

const char *rp_t5_family(const rp_t5 *m)
{
    const family *f = recognize(m);
    return f != NULL ? f->name : NULL;
}

/* Find a family by its name, or that of the model if the name is NULL. */
static const family *find_family(const rp_t5 *m, const char *name)
{
    if (name == NULL)
        return recognize(m);
    for (int k = 0; k < FAMILIES; k++)
        if (strcmp(families[k].name, name) == 0)
            return &families[k];
    t5_fail(RP_E_ARG, "the family \"%s\" is unknown (use prott5, prostt5 or ankh)", name);
    return NULL;
}

/* Fill the table of a family from the pieces of the tokenizer, or with the usual numbers if it lacks them. */
static rp_status make_alphabet(const rp_t5 *m, const family *f, alphabet *a)
{
    char missing[16];
    const bool pieces = m->tokenizer != NULL && has_pieces(m, f, missing);
    int32_t unknown = pieces ? tok_id(m->tokenizer, "<unk>", 5) : UNKNOWN;
    for (int k = 0; k < LETTERS; k++) {
        const char letter = (char)('A' + k), *at = strchr(usual, letter);
        a->tokens[k] = pieces ? token_of(m, f, letter) : at != NULL ? 3 + (int32_t)(at - usual) : -1;
        a->replaced[k] = false;
    }
    for (const char *c = f->replaced; *c != 0; c += 2) {
        a->tokens[c[0] - 'A'] = c[1] == '?' ? unknown : a->tokens[c[1] - 'A'];
        a->replaced[c[0] - 'A'] = true;
    }
    a->tokens[STOP] = a->tokens['X' - 'A'];
    a->replaced[STOP] = true;
    a->prefix = f->prefix == NULL ? -1
                : pieces          ? tok_id(m->tokenizer, f->prefix, (int64_t)strlen(f->prefix))
                                  : f->prefix_token;
    for (int k = 0; k < TABLE; k++) {
        if (a->tokens[k] < 0) { /* an Ankh without B, O, U or Z */
            a->tokens[k] = a->tokens['X' - 'A'];
            a->replaced[k] = true;
        }
        if (a->tokens[k] < 0 || a->tokens[k] >= m->config.vocab || a->prefix >= m->config.vocab)
            return t5_fail(RP_E_UNSUPPORTED,
                           "the embedding has %lld rows, which are too few for the tokens of %s (give another family)",
                           (long long)m->config.vocab, f->name);
    }
    return RP_OK;
}

rp_status rp_t5_residues(const rp_t5 *m, const char *name, const char *text, int64_t bytes, rp_t5_protein *p)
{
    alphabet a;
    if (m == NULL || text == NULL || p == NULL)
        return t5_fail(RP_E_ARG, "model, text or protein is NULL; pass all of them");
    *p = (rp_t5_protein){0};
    const int64_t size = bytes < 0 ? (int64_t)strlen(text) : bytes;
    if (size > INT32_MAX - 2)
        return t5_fail(RP_E_RANGE, "the protein has %lld residues; it must have at most %d", (long long)size,
                       INT32_MAX - 2);
    const family *f = find_family(m, name);
    if (f == NULL)
        return name != NULL ? RP_E_ARG : RP_E_UNSUPPORTED;
    const rp_status status = make_alphabet(m, f, &a);
    if (status != RP_OK)
        return status;
    rp_t5_protein made = {.tokens = malloc(((size_t)size + 2) * sizeof(int32_t))};
    if (made.tokens == NULL)
        return t5_no_memory();
    if (a.prefix >= 0)
        made.tokens[made.before++] = a.prefix;
    made.n = made.before;
    for (int64_t k = 0; k < size; k++) {
        const int c = io_residue((unsigned char)text[k]), index = c == '*' ? STOP : c - 'A';
        if (c < 0) {
            free(made.tokens);
            return t5_fail(RP_E_ARG,
                           "byte %lld is 0x%02x, which is not a residue (use A to Z, * or . for a stop, - for a gap)",
                           (long long)k, (unsigned char)text[k]);
        }
        if (c > 0) {
            made.tokens[made.n++] = a.tokens[index];
            made.replaced += a.replaced[index];
        }
    }
    made.residues = made.n - made.before;
    made.tokens[made.n++] = rp_t5_about(m)->eos;
    *p = made;
    return RP_OK;
}

rp_status rp_t5_encode_residues(const rp_t5 *m, int64_t n, const rp_t5_protein *proteins, float *out,
                                rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    if (n < 0 || (n > 0 && (proteins == NULL || out == NULL)))
        return t5_fail(RP_E_ARG, "proteins or out is NULL, or n is negative; pass both arrays and their length");
    rp_t5_tokens *sources = calloc((size_t)n + 1, sizeof *sources);
    if (sources == NULL)
        return t5_no_memory();
    int64_t rows = 0;
    rp_status status = RP_OK;
    for (int64_t k = 0; k < n && status == RP_OK; k++) {
        const rp_t5_protein *p = &proteins[k];
        sources[k] = (rp_t5_tokens){p->tokens, p->n};
        if (p->before != proteins[0].before || p->before < 0 || p->residues < 0 || p->n != p->before + p->residues + 1)
            status =
                t5_fail(RP_E_ARG, "proteins[%lld] was not made by rp_t5_residues, or for another family", (long long)k);
        rows += p->residues;
    }
    if (status == RP_OK)
        status = t5_check_tokens(m, "proteins", n, sources);
    if (status == RP_OK && n > 0)
        status = t5_finish(m, t5_encode_inner(m, n, sources, proteins[0].before, 1, out, &watch));
    free(sources);
    return status == RP_OK ? t5_check_hidden(m, out, rows) : status;
}

/* ------------------------------------------------------------------------------------------------ FASTA files */

/* The public names of io_fasta. */
struct rp_t5_fasta {
    io_fasta *file;
};

rp_status rp_t5_fasta_open(rp_t5_fasta **fasta, const char *path)
{
    char err[IO_ERR_MAX];
    if (fasta == NULL || path == NULL)
        return t5_fail(RP_E_ARG, "fasta or path is NULL; pass both");
    *fasta = NULL;
    rp_t5_fasta *made = malloc(sizeof *made);
    if (made == NULL)
        return t5_no_memory();
    made->file = io_fasta_open(path, err);
    if (made->file == NULL) {
        free(made);
        return t5_fail(RP_E_ARG, "%s", err);
    }
    *fasta = made;
    return RP_OK;
}

rp_status rp_t5_fasta_next(rp_t5_fasta *fasta, int32_t keep, int64_t max, rp_t5_record *record)
{
    char err[IO_ERR_MAX];
    io_record r;
    if (fasta == NULL || record == NULL)
        return t5_fail(RP_E_ARG, "fasta or record is NULL; pass both");
    const int got = io_fasta_next(fasta->file, keep != 0, max, &r, err);
    *record = got == 1 ? (rp_t5_record){r.header, r.residues, r.n, r.line} : (rp_t5_record){0};
    return got >= 0 ? RP_OK : t5_fail(got == IO_FASTA_LONG ? RP_E_RANGE : RP_E_ARG, "%s", err);
}

rp_status rp_t5_fasta_skip(rp_t5_fasta *fasta, rp_t5_record *record)
{
    char err[IO_ERR_MAX] = "";
    io_record r;
    if (fasta == NULL || record == NULL)
        return t5_fail(RP_E_ARG, "fasta or record is NULL; pass both");
    if (io_fasta_skip(fasta->file, &r, err) == 0) {
        *record = (rp_t5_record){.header = r.header, .line = r.line};
        return RP_OK;
    }
    *record = (rp_t5_record){0};
    return err[0] != 0 ? t5_fail(RP_E_ARG, "%s", err) : RP_E_ARG; /* else rp_t5_last_error stays that of the file */
}

int rp_t5_fasta_again(const rp_t5_fasta *fasta)
{
    return fasta != NULL && io_fasta_regular(fasta->file);
}

void rp_t5_fasta_close(rp_t5_fasta *fasta)
{
    if (fasta != NULL)
        io_fasta_close(fasta->file);
    free(fasta);
}
