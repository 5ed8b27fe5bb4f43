/* proteins.h -- the parts of `relpos t5 proteins` and `relpos proteins`: the names of proteins, the output, the model,
 * and the computation.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_PROTEINS_H
#define RELPOS_CLI_PROTEINS_H

#include "io/append.h"
#include "cli/team.h"
#include "cli/t5/t5.h"

/* ------------------------------------------------------------------------------------------------ protein_names.c */

/* A protein that is known by its key: the header with / and . replaced by _. */
typedef struct protein_name {
    size_t text;      /* offset of the key in protein_names.text */
    uint64_t hash;    /* of the key */
    uint64_t tag;     /* checksum of the residues, if it is stored */
    int64_t residues; /* in the FASTA file, if that was counted; 0: not yet */
    int64_t line;     /* of its header */
    bool stored;      /* the output has it */
    bool replaced;    /* a file that the output will replace has it */
    bool read;        /* its record was read for computing */
} protein_name;

/* A hash table of names. */
typedef struct protein_names {
    char *text;
    size_t size, capacity;
    protein_name *names; /* [n] in the order of addition; the array moves when names are added */
    size_t n, room;
    size_t *slots; /* [n_slots] index + 1 of a name, or 0 */
    size_t n_slots;
} protein_names;

/* Find the key of a header, or add it. Return its index, or SIZE_MAX if out of memory. */
size_t protein_names_add(protein_names *p, const char *header);
const char *protein_key(const protein_names *p, size_t index);
void protein_names_free(protein_names *p);

/* ------------------------------------------------------------------------------------------------ protein_output.c */

/* The file of arrays that is being written. */
typedef struct protein_output {
    const char *command; /* for messages */
    char *path, *part;   /* the output, and the file that becomes it at the end */
    bool hdf5;
    rp_dtype type;
    bool pool;       /* one vector per protein */
    char note[1024]; /* describes how the arrays are made */
    io_append *archive;
    protein_names *names;
    io_append_end end;        /* of the .npz that an earlier run completed */
    int64_t damaged;          /* arrays of an earlier run whose data does not match its checksum */
    unsigned char *converted; /* one protein in the type of the file */
    size_t converted_size;
    double flushed, took; /* when the archive was last flushed, and how long that took */
} protein_output;

/* Check the path, and find which proteins it or its .part file has already; they become `stored`. */
int protein_output_begin(protein_output *o, const char *path);
/* Open the .part file for writing. */
int protein_output_open(protein_output *o);
/* Write the n rows of a protein, or with `pool` their mean, which is the only row then. */
int protein_output_put(protein_output *o, size_t name, uint64_t tag, const float *rows, int64_t n, int64_t d);
/* Make the .part file readable for other programs, unless that was done a moment ago. */
int protein_output_flush(protein_output *o);
/* With code CLI_OK, the .part file becomes the output. Otherwise it stays. Return the exit code. */
int protein_output_close(protein_output *o, int code);
void protein_output_free(protein_output *o);

/* ------------------------------------------------------------------------------------------------ protein_hdf5.c */

/* Load HDF5, before the functions below are called. Return NULL, or the reason why this program cannot write HDF5. */
const char *protein_hdf5_load(void);
/* List the arrays of an HDF5 file that relpos wrote, like io_append_list. */
int protein_hdf5_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                      char err[IO_ERR_MAX]);
/* Write the n arrays of the archive `part` to an HDF5 file, after those of `path` if it exists. The file appears whole
 * or not at all. */
int protein_hdf5_write(const char *path, const char *part, uint64_t n, const char *note, char err[IO_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ the model */

struct protein_job;

/* What the commands need to know of a model. */
typedef struct protein_facts {
    int64_t width;                /* of hidden states */
    int64_t bytes;                /* of the weights; 0 before they are loaded */
    int64_t max_residues;         /* of a protein; 0: unlimited */
    const char *type;             /* of the weights */
    double token_cost, pair_cost; /* multiply-adds for each token, and for each pair of tokens */
} protein_facts;

/* What the commands do with a model: a T5 (protein_t5.c), or an encoder (cli/encoder/proteins.c). Functions that return
 * int return CLI_OK, or an exit code after printing. */
typedef struct protein_kind {
    const char *command; /* "t5 proteins" */
    bool has_letters;    /* --3di is possible */
    /* Set j->facts, before the FASTA file is read; the weights may stay unread. */
    int (*look)(struct protein_job *j, const char *path);
    /* Open the model, and set j->facts. */
    int (*open)(struct protein_job *j, const char *path);
    /* Set j->family. given: the value of --family, or NULL. */
    int (*find_family)(struct protein_job *j, const char *given);
    /* Check that a file, which may be NULL, is not one of the model. */
    int (*keep)(const struct protein_job *j, const char *output);
    /* In a team, compare the model with that of rank 0. */
    int (*agree)(const struct protein_job *j);
    /* Return the bytes that `encode` allocates for `rows` tokens in one sequence; -1 on overflow. */
    int64_t (*call_bytes)(const struct protein_job *j, int64_t rows);
    int (*checksum)(const struct protein_job *j, char text[17]);
    /* Convert residues to tokens, as rp_t5_residues does. */
    rp_status (*residues)(const struct protein_job *j, const char *text, int64_t n, rp_t5_protein *p);
    /* Compute the hidden states of residues, as rp_t5_encode_residues does. */
    rp_status (*encode)(const struct protein_job *j, int64_t n, const rp_t5_protein *proteins, float *out,
                        rp_progress *progress, void *context);
    void (*free_tokens)(void *tokens);
    /* Print the error of a call, or that a signal stopped the command. */
    int (*refused)(const struct protein_job *j);
    void (*close)(struct protein_job *j);
} protein_kind;

/* The options, and the command for a kind of model. */
extern const cli_option protein_options[];
int protein_run(const protein_kind *kind, void *encoder, const cli_command *self, int argc, char **argv);
/* Set *model to the first argument, or to NULL. Return -1, or an exit code after printing an error or the help. */
int protein_find_model(const cli_command *self, int argc, char **argv, const char **model);

/* ------------------------------------------------------------------------------------------------ protein_records.c */

/* The list of records that are left out: with --skip-bad, a line for each: number of its line, name and reason, between
 * tabs. It appears whole or not at all. */
typedef struct protein_skips {
    const char *path; /* NULL: bad records are errors */
    bool allowed;     /* it is not a file of the model, so it may be completed */
    io_text *text;
    FILE *to;
    int64_t n;
} protein_skips;

int protein_skips_open(protein_skips *s);
/* Add a record. */
void protein_skip(protein_skips *s, int64_t line, const char *name, const char *why);
/* Complete the list, or remove it if it is not whole. Return the exit code. */
int protein_skips_close(protein_skips *s, bool whole, int code);

/* Read the next record, of at most j->longest residues. A bad record is left out if the user allows that; it is then
 * listed, unless the file was read before. */
int protein_next(struct protein_job *j, rp_t5_fasta *file, bool keep, rp_t5_record *r);
/* Report a record whose name another one has, or leave it out. */
int protein_twice(struct protein_job *j, const rp_t5_record *r, size_t name);

/* ------------------------------------------------------------------------------------------------ protein_batches.c */

/* The computation. */
typedef struct protein_job {
    const protein_kind *kind;
    protein_facts facts;
    cli_t5_common common;       /* the options, and a T5 */
    void *encoder;              /* of cli/encoder/proteins.c */
    const char *fasta, *family; /* family: NULL until it is known */
    rp_t5_fasta *file;
    protein_names names;
    protein_output *output; /* NULL with --3di, and in processes that only compute */
    bool pooled;            /* compute one vector per protein */
    rp_t5_structure *structure;
    FILE *letters;   /* receives the 3Di letters */
    int64_t rows;    /* max tokens of a call, unless one protein is longer */
    int64_t longest; /* max residues of a protein */
    int64_t memory;  /* bytes from which that limit follows; 0: none */
    protein_skips skips;
    int64_t window;         /* max bytes of the proteins that are read together */
    bool counted;           /* the totals are known */
    int64_t tokens;         /* of all proteins to compute */
    double cost, cost_done; /* work of all proteins to compute, in multiply-adds */
    int64_t n_done, residues_done, residues_replaced, proteins_replaced, n_stored, n_copies;
    cli_progress progress;
    char note[64];
    struct protein_batches *batches; /* the windows and batches in progress */
} protein_job;

enum { PROTEIN_TEAM_TASKS = 3 }; /* max batches in memory for each process of a team */

/* Read the file, and compute the proteins that the output lacks. In processes other than rank 0, compute what rank 0
 * hands out. */
int protein_compute(protein_job *j);
/* Return the work for a protein of n residues. */
double protein_cost(const protein_facts *f, int64_t n);

#endif
