/* proteins.c -- relpos t5 proteins, and relpos proteins: embed the proteins of a FASTA file, or predict their 3Di
 * letters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/proteins.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT = 'o', POOL = T5_OWN, DTYPE, FAMILY, MEMORY, THREE_DI, HEAD, SKIP_BAD };
enum { MAX_ROWS = 8192 };           /* max tokens of a call, unless one protein is longer */
#define WINDOW      (64ll << 20)    /* bytes of the proteins that are read together */
#define SOME_MEMORY (32ll << 20)    /* for everything that is not counted */
#define LONGEST     (INT32_MAX - 2) /* max residues of a protein */
#define GIB         (1024.0 * 1024 * 1024)

const cli_option protein_options[] = {
    {"output", OUT, "FILE", "write one array per protein to FILE (.npz or .h5), or 3Di letters (.fasta, or -)"},
    {"pool", POOL, NULL, "write one vector per protein, the mean over its residues; default: one row per residue"},
    {"dtype", DTYPE, "T", "write numbers as f16 or f32; default f16"},
    {"3di", THREE_DI, NULL, "predict 3Di letters with ProstT5, and write them as FASTA"},
    {"head", HEAD, "FILE",
     "read the predictor of --3di from FILE; default: cnn.safetensors or model.pt in the model's folder"},
    {"family", FAMILY, "NAME", "read residues as prott5, prostt5 or ankh; default: what the tokenizer's pieces say"},
    {"memory", MEMORY, "SIZE",
     "use at most SIZE of memory, such as 8G; default: what the longest protein needs, within the memory of this "
     "machine"},
    {"skip-bad", SKIP_BAD, "FILE",
     "leave out bad records, and write their lines, names and faults to FILE, between tabs"},
    T5_COMMON_OPTIONS,
    {0},
};

typedef struct request {
    protein_job job;
    protein_output output;
    const char *out, *head, *family;
    bool three_di, pooled, typed;
    int64_t memory; /* 0: no limit */
    int64_t n_to_do, residues_to_do;
    bool continues; /* the output has some of the proteins */
    size_t longest; /* index of the longest protein to compute */
} request;

/* Parse a size such as 500M or 8G, in units of 1024. */
static int take_size(const char *value, int64_t *size)
{
    static const char units[] = "KMGT";
    char safe[64], *end;
    const double x = strtod(value, &end);
    const char *unit = *end != 0 ? strchr(units, *end & ~0x20) : NULL;
    double bytes = x;
    for (const char *u = units; unit != NULL && u <= unit; u++)
        bytes *= 1024;
    if (end == value || !(x > 0) || bytes < 1 || bytes > 1e18 || (*end != 0 && (unit == NULL || end[1] != 0)))
        return cli_error(CLI_USAGE, "--memory: the value \"%s\" is not a size (write 500M or 8G)",
                         io_safe(safe, sizeof safe, value));
    *size = (int64_t)bytes;
    return CLI_OK;
}

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    char safe[64];
    switch (key) {
    case OUT: r->out = value; return CLI_OK;
    case POOL: r->pooled = true; return CLI_OK;
    case THREE_DI: r->three_di = true; return CLI_OK;
    case HEAD: r->head = value; return CLI_OK;
    case FAMILY: r->family = value; return CLI_OK;
    case MEMORY: return take_size(value, &r->memory);
    case SKIP_BAD: r->job.skips.path = value; return CLI_OK;
    case DTYPE:
        r->typed = true;
        r->output.type = strcmp(value, "f16") == 0 ? RP_F16 : RP_F32;
        if (r->output.type == RP_F32 && strcmp(value, "f32") != 0)
            return cli_error(CLI_USAGE, "--dtype: the type \"%s\" is unknown (use f16 or f32)",
                             io_safe(safe, sizeof safe, value));
        return CLI_OK;
    default: return cli_t5_common_option(&r->job.common, key, value);
    }
}

/* Return true if two paths name one file, which need not exist. Standard input and output are different. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, "-") == 0 || strcmp(b, "-") == 0)
        return false;
    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Check the options before any work. */
static int check_options(request *r, const char *const args[2])
{
    const char *name = r->job.kind->command;
    char safe[160];
    if (args[0] == NULL)
        return cli_error(CLI_USAGE, "%s: no model was given (write relpos %s DIR FASTA -o x.npz)", name, name);
    if (args[1] == NULL)
        return cli_error(CLI_USAGE, "%s: no FASTA file was given (give one, or - for standard input)", name);
    if (r->out == NULL)
        return cli_error(CLI_USAGE, "%s: no output file was given (give one with -o x.npz)", name);
    const size_t length = strlen(r->out);
    r->output.hdf5 = length > 3 && strcmp(r->out + length - 3, ".h5") == 0;
    if (r->head != NULL && !r->three_di)
        return cli_error(CLI_USAGE, "--head: only --3di uses it (add --3di)");
    if (r->three_di && (io_format_of(r->out) == IO_NPZ || r->output.hdf5))
        return cli_error(CLI_USAGE, "-o: %s: --3di writes FASTA (use another suffix, such as .fasta)",
                         io_safe(safe, sizeof safe, r->out));
    if (r->three_di && (r->pooled || r->typed))
        return cli_error(CLI_USAGE, "--3di: it writes letters, not numbers (remove --%s)",
                         r->pooled ? "pool" : "dtype");
    if (!r->three_di && !r->output.hdf5 && io_format_of(r->out) != IO_NPZ)
        return cli_error(CLI_USAGE, "-o: %s: the suffix is unknown (use .npz or .h5)",
                         io_safe(safe, sizeof safe, r->out));
    const char *lacks = r->output.hdf5 ? protein_hdf5_load() : NULL;
    if (lacks != NULL)
        return cli_error(CLI_USAGE, "-o: %s: %s", io_safe(safe, sizeof safe, r->out), lacks);
    const char *skips = r->job.skips.path;
    if (is_same_file(r->out, args[1]))
        return cli_error(CLI_USAGE, "-o: %s: it is also the FASTA file (give another file)",
                         io_safe(safe, sizeof safe, r->out));
    if (skips != NULL && (is_same_file(skips, r->out) || is_same_file(skips, args[1])))
        return cli_error(CLI_USAGE, "--skip-bad: %s: it is also %s (give another file)",
                         io_safe(safe, sizeof safe, skips),
                         is_same_file(skips, r->out) ? "the output" : "the FASTA file");
    const int code = skips != NULL ? cli_check_output("--skip-bad", skips) : CLI_OK;
    if (code != CLI_OK)
        return code;
    return cli_check_output("-o", r->out);
}

/* ------------------------------------------------------------------------------------------------ before the work */

/* Read the whole file once: check it, find names that occur twice, and count residues. */
static int scan(protein_job *j)
{
    rp_t5_fasta *file;
    rp_t5_record record;
    if (rp_t5_fasta_open(&file, j->fasta) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
    int code;
    while ((code = protein_next(j, file, false, &record)) == CLI_OK && record.header != NULL) {
        const size_t index = protein_names_add(&j->names, record.header);
        protein_name *name = index != SIZE_MAX ? &j->names.names[index] : NULL;
        if (name == NULL)
            code =
                cli_error(CLI_FAILED, "%s: out of memory for the names of the proteins (give fewer)", j->kind->command);
        else if (name->residues > 0)
            code = protein_twice(j, &record, index);
        else
            name->residues = record.n, name->line = record.line;
        if (code != CLI_OK)
            break;
    }
    rp_t5_fasta_close(file);
    j->counted = code == CLI_OK;
    return code;
}

/* Describe how the arrays are made. A file with another description is not continued. */
static int describe(request *r)
{
    char checksum[17];
    const protein_job *j = &r->job;
    const int code = j->kind->checksum(j, checksum);
    if (code == CLI_OK)
        snprintf(r->output.note, sizeof r->output.note, "relpos %s: weights %s as %s, family %s, %s of %s",
                 j->kind->command, checksum, j->facts.type, j->family, r->output.pool ? "means" : "residues",
                 r->output.type == RP_F16 ? "f16" : "f32");
    return code;
}

/* Count the proteins that the output lacks, and find the longest. */
static void count(request *r)
{
    protein_job *j = &r->job;
    int64_t most = 0;
    r->n_to_do = r->residues_to_do = j->tokens = 0;
    j->cost = 0;
    for (size_t k = 0; k < j->names.n; k++) {
        const protein_name *name = &j->names.names[k];
        r->continues |= name->stored && name->residues > 0;
        if (name->stored || name->residues == 0)
            continue;
        r->n_to_do++;
        r->residues_to_do += name->residues;
        j->tokens += name->residues + 2;
        j->cost += protein_cost(&j->facts, name->residues);
        if (name->residues > most)
            most = name->residues, r->longest = k;
    }
}

/* Return the bytes of the proteins that are read together. */
static int64_t window_of(int64_t memory)
{
    return memory > 0 && memory / 64 < WINDOW ? memory / 64 : WINDOW;
}

/* Return the bytes for calls of `rows` tokens, or for a protein of so many; INT64_MAX if that is too much. */
static int64_t need(const protein_job *j, int64_t window, int64_t rows)
{
    const int64_t call = j->kind->call_bytes(j, rows), ranks = cli_team_ranks();
    const int64_t row = j->facts.width * (ranks > 1 ? 8 + 4 * PROTEIN_TEAM_TASKS * ranks : 8);
    int64_t all;
    return call < 0 || __builtin_mul_overflow(rows, row, &all) || __builtin_add_overflow(all, call, &all) ||
                   __builtin_add_overflow(all, j->facts.bytes + 2 * window + SOME_MEMORY, &all)
               ? INT64_MAX
               : all;
}

/* Return the longest protein that fits the memory, in residues. */
static int64_t longest_that_fits(const protein_job *j, int64_t window, int64_t memory)
{
    int64_t low = 0, high = LONGEST;
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        if (need(j, window, middle + 2) <= memory)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Return a limit of residues, or that of the model if it is less. */
static int64_t at_most(const protein_job *j, int64_t residues)
{
    const int64_t most = j->facts.max_residues;
    return most > 0 && most < residues ? most : residues;
}

/* Limit the length of proteins before the weights are loaded, so that a record of any length is refused at once. The
 * memory of the weights is not counted here: they may be mapped from a file. */
static int limit_lengths(request *r, const char *path)
{
    protein_job *j = &r->job;
    const int code = j->kind->look(j, path);
    if (code != CLI_OK)
        return code;
    j->memory = r->memory > 0 ? r->memory : cli_memory(false);
    const int64_t fits = longest_that_fits(j, window_of(j->memory), j->memory);
    j->longest = at_most(j, fits > MAX_ROWS ? fits : MAX_ROWS); /* plan() checks short ones */
    return CLI_OK;
}

/* Leave out the proteins of more than j->longest residues. */
static void leave_out_long(request *r)
{
    protein_job *j = &r->job;
    for (size_t k = 0; k < j->names.n; k++) {
        protein_name *name = &j->names.names[k];
        char why[200];
        if (name->stored || name->residues <= j->longest)
            continue;
        snprintf(why, sizeof why, "line %lld: %lld residues, but --memory allows %lld", (long long)name->line,
                 (long long)name->residues, (long long)j->longest);
        protein_skip(&j->skips, name->line, protein_key(&j->names, k), why);
        name->residues = 0;
    }
    count(r);
}

/* Choose the size of batches, check the limit of memory, and say what is needed. */
static int plan(request *r)
{
    protein_job *j = &r->job;
    const protein_facts *i = &j->facts;
    char safe[100];
    int64_t longest = j->counted ? j->names.names[r->longest].residues : 0;
    j->rows = MAX_ROWS;
    j->window = window_of(r->memory);
    if (j->counted && j->window > r->residues_to_do + (int64_t)j->names.size)
        j->window = r->residues_to_do + (int64_t)j->names.size;
    if (j->counted && j->rows > r->residues_to_do + 2 * r->n_to_do)
        j->rows = r->residues_to_do + 2 * r->n_to_do;
    if (r->memory > 0) {
        const int64_t fits = longest_that_fits(j, j->window, r->memory);
        j->longest = at_most(j, fits);
        if (fits > 0 && fits < longest && j->skips.to != NULL) {
            leave_out_long(r);
            longest = j->names.names[r->longest].residues;
        }
        if (fits < (longest > 0 ? longest : 1))
            return cli_error(CLI_FAILED,
                             "--memory: %.3g GiB are too few: the protein %s of %lld residues needs %.3g GiB, of which "
                             "%.3g are weights (give more, a narrower --type, or remove the protein)",
                             (double)r->memory / GIB,
                             longest > 0 ? io_safe(safe, sizeof safe, protein_key(&j->names, r->longest)) : "shortest",
                             (long long)longest, (double)need(j, j->window, (longest > 0 ? longest : 1) + 2) / GIB,
                             (double)i->bytes / GIB);
        j->rows = fits + 2 < j->rows ? fits + 2 : j->rows;
    }
    const int64_t rows = longest + 2 > j->rows ? longest + 2 : j->rows;
    if (j->counted)
        fprintf(stderr, "%s: %lld protein%s %sof %lld residue%s, the longest %lld (%s)\n", j->kind->command,
                (long long)r->n_to_do, cli_s(r->n_to_do),
                !r->continues     ? ""
                : r->n_to_do == 1 ? "is left, "
                                  : "are left, ",
                (long long)r->residues_to_do, cli_s(r->residues_to_do), (long long)longest,
                io_safe(safe, sizeof safe, protein_key(&j->names, r->longest)));
    fprintf(stderr, "%s: %s, %s; %.3g GiB of weights, %.3g GiB in all%s\n", j->kind->command, j->family, i->type,
            (double)i->bytes / GIB, (double)need(j, j->window, rows) / GIB,
            j->counted || r->memory > 0 ? "" : ", more for proteins of over 8,190 residues");
    return CLI_OK;
}

/* Open the predictor of 3Di letters. */
static int open_head(request *r, const char *model)
{
    static const char *const names[] = {"cnn.safetensors", "model.pt", "cnn_chkpnt/model.pt"};
    char path[PATH_MAX], safe[160];
    for (size_t k = 0; r->head == NULL && k < sizeof names / sizeof *names; k++)
        if (snprintf(path, sizeof path, "%s/%s", model, names[k]) < (int)sizeof path &&
            (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)))
            r->head = path;
    if (r->head == NULL)
        return cli_error(CLI_FAILED, "--3di: %s: it has no %s or %s (give the predictor with --head)",
                         io_safe(safe, sizeof safe, model), names[0], names[1]);
    if (strcmp(r->job.family, "prostt5") != 0)
        return cli_error(CLI_FAILED,
                         "--3di: the model is %s, but only ProstT5 predicts 3Di letters (give a ProstT5 model)",
                         r->job.family);
    return rp_t5_structure_open(&r->job.structure, r->job.common.model, r->head) == RP_OK
               ? CLI_OK
               : cli_error(CLI_FAILED, "--head: %s", rp_t5_last_error());
}

/* ------------------------------------------------------------------------------------------------ the work */

/* Say what was done, or where an interrupted run continues. */
static void report(const request *r, int code)
{
    const protein_job *j = &r->job;
    char safe[160];
    if (cli_team_rank() != 0)
        return;
    if (code != CLI_OK && cli_stop_requested() && (r->three_di || r->output.part == NULL))
        cli_t5_stopped(j->kind->command);
    else if (code != CLI_OK && cli_stop_requested())
        cli_error(CLI_FAILED, "%s: stopped by a signal; %lld protein%s in %s (start it again to continue)",
                  j->kind->command, (long long)(j->n_done + j->n_stored),
                  j->n_done + j->n_stored == 1 ? " is" : "s are", io_safe(safe, sizeof safe, r->output.part));
    if (code != CLI_OK)
        return;
    fprintf(stderr, "%s: computed %lld protein%s of %lld residue%s", j->kind->command, (long long)j->n_done,
            cli_s(j->n_done), (long long)j->residues_done, cli_s(j->residues_done));
    if (j->n_copies > 0)
        fprintf(stderr, "; %lld %s the residues of another", (long long)j->n_copies, j->n_copies == 1 ? "has" : "have");
    if (j->n_stored > 0)
        fprintf(stderr, "; %lld %s already there", (long long)j->n_stored, j->n_stored == 1 ? "was" : "were");
    if (j->residues_replaced > 0)
        fprintf(stderr, "; %lld residue%s of %lld protein%s not in the alphabet and %s read as others",
                (long long)j->residues_replaced, cli_s(j->residues_replaced), (long long)j->proteins_replaced,
                j->residues_replaced == 1   ? " is"
                : j->proteins_replaced == 1 ? " are"
                                            : "s are",
                j->residues_replaced == 1 ? "was" : "were");
    if (j->skips.n > 0)
        fprintf(stderr, "; left out %lld bad record%s (see %s)", (long long)j->skips.n, cli_s(j->skips.n),
                io_safe(safe, sizeof safe, j->skips.path));
    fputc('\n', stderr);
}

/* Write arrays. */
static int embed(request *r)
{
    protein_output *o = &r->output;
    protein_job *j = &r->job;
    char safe[160];
    o->names = &j->names;
    j->output = o;
    int code = describe(r);
    if (code == CLI_OK)
        code = protein_output_begin(o, r->out);
    if (code != CLI_OK)
        return code;
    count(r);
    const bool open = !j->counted || r->n_to_do > 0 || access(o->part, F_OK) == 0;
    if (!open && o->end == IO_APPEND_MORE)
        return cli_error(CLI_FAILED,
                         "-o: %s: it is damaged: what follows its intact arrays is not their directory (give all of "
                         "its proteins to compute the others again, or remove it)",
                         io_safe(safe, sizeof safe, o->path));
    if (open || o->end == IO_APPEND_MEND)
        code = protein_output_open(o);
    if (code == CLI_OK && o->damaged > 0)
        fprintf(stderr, "%s: arrays that do not match their checksums, and are left out: %lld\n", j->kind->command,
                (long long)o->damaged);
    if (code == CLI_OK && o->end == IO_APPEND_MEND)
        fprintf(stderr, "%s: the directory of the output is damaged, and is written again\n", j->kind->command);
    count(r); /* without those of the .part file */
    if (code == CLI_OK && (!j->counted || r->n_to_do > 0))
        code = plan(r);
    else
        j->window = WINDOW;
    if (code == CLI_OK)
        code = protein_compute(j);
    return protein_output_close(o, code);
}

/* Write 3Di letters. */
static int predict(request *r)
{
    char err[IO_ERR_MAX];
    count(r);
    int code = plan(r);
    io_text *text = code == CLI_OK ? io_text_open(r->out, &r->job.letters, err) : NULL;
    if (code == CLI_OK && text == NULL)
        return cli_error(CLI_FAILED, "-o: %s", err);
    if (code == CLI_OK)
        code = protein_compute(&r->job);
    if (text != NULL && io_text_close(text, code == CLI_OK ? 0 : -1, err) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "-o: %s", err);
    return code;
}

/* Open the file. Only rank 0 has it. */
static int open_fasta(protein_job *j)
{
    if (cli_team_rank() != 0)
        return CLI_OK;
    if (rp_t5_fasta_open(&j->file, j->fasta) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
    return CLI_OK;
}

int protein_run(const protein_kind *kind, void *encoder, const cli_command *self, int argc, char **argv)
{
    request r = {.job = {.kind = kind, .encoder = encoder}, .output = {.command = kind->command, .type = RP_F16}};
    protein_job *j = &r.job;
    char safe[160];
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    code = check_options(&r, args);
    if (code == CLI_OK && r.three_di && !kind->has_letters)
        code = cli_error(CLI_USAGE, "--3di: the model is an encoder, but only ProstT5 predicts 3Di letters (give a "
                                    "ProstT5 model)");
    j->fasta = args[1];
    j->pooled = r.output.pool = r.pooled;
    if (code == CLI_OK)
        code = open_fasta(j);
    if (code == CLI_OK)
        code = protein_skips_open(&j->skips);
    if (code == CLI_OK && j->file != NULL)
        code = limit_lengths(&r, args[0]);
    if (code == CLI_OK && j->file != NULL && rp_t5_fasta_again(j->file))
        code = scan(j);
    if (code == CLI_OK)
        code = kind->open(j, args[0]);
    if (code == CLI_OK)
        code = kind->keep(j, r.out);
    if (code == CLI_OK)
        code = kind->keep(j, j->skips.path);
    j->skips.allowed = code == CLI_OK;
    if (code == CLI_OK && j->counted && j->names.n == 0)
        code = cli_error(CLI_FAILED, "%s: all records are bad (see %s)", io_safe(safe, 80, j->fasta),
                         io_safe(safe + 80, 80, j->skips.path));
    if (code == CLI_OK)
        code = kind->find_family(j, r.family);
    if (code == CLI_OK && r.three_di)
        code = open_head(&r, args[0]);
    if (code == CLI_OK)
        code = kind->agree(j);
    if (code == CLI_OK)
        code = cli_team_rank() != 0 ? protein_compute(j) : r.three_di ? predict(&r) : embed(&r);
    code = protein_skips_close(&j->skips, j->skips.allowed && (j->counted || code == CLI_OK), code);
    report(&r, code);
    cli_team_settle(code);
    rp_t5_structure_close(j->structure);
    rp_t5_fasta_close(j->file);
    protein_output_free(&r.output);
    protein_names_free(&j->names);
    kind->close(j);
    return code;
}

int protein_find_model(const cli_command *self, int argc, char **argv, const char **model)
{
    request r = {.output.type = RP_F16};
    const char *args[2] = {NULL, NULL};
    int n_args = 0;
    const int code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    *model = args[0];
    return code;
}
