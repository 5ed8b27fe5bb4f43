/* shift.c -- relpos shift: move an object over a grid of patches, and print how scores of attention change.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/support/shift_image.h"
#include <math.h>
#include <stdlib.h>

enum { GRID = CLI_FIRST_KEY, OBJECT, BY, WINDOW, SEED, JSON };

static const cli_option options[] = {
    {"grid", GRID, "N", "set the rows and columns of patches; default 8, at most 32"},
    {"object", OBJECT, "N", "set the rows and columns of the object; default 2, at most 16 and the grid's"},
    {"by", BY, "N", "show only the shift by N patches down and to the right; default: all that keep the object inside"},
    {"window", WINDOW, "N", "set the rows and columns of a window; default 4, at most the grid's"},
    {"seed", SEED, "N", "set the seed of the random numbers; default 1"},
    {"json", JSON, NULL, "print one JSON object"},
    {0},
};

typedef struct request {
    int64_t grid, object, window, seed;
    int64_t by;          /* -1: all shifts */
    int64_t first, last; /* shifts to show */
    bool json;
} request;

/* The names in JSON. */
static const char *const names[SHIFT_KINDS] = {
    [SHIFT_ABSOLUTE] = "absolute",
    [SHIFT_RELATIVE] = "relative",
    [SHIFT_WINDOWS] = "windows",
    [SHIFT_SHIFTED_WINDOWS] = "shifted_windows",
};

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case GRID: return cli_integer("--grid", value, 1, SHIFT_MAX_GRID, &r->grid);
    case OBJECT: return cli_integer("--object", value, 1, SHIFT_MAX_OBJECT, &r->object);
    case BY: return cli_integer("--by", value, 0, SHIFT_MAX_GRID, &r->by);
    case WINDOW: return cli_integer("--window", value, 1, SHIFT_MAX_GRID, &r->window);
    case SEED: return cli_integer("--seed", value, 0, INT64_MAX, &r->seed);
    default: r->json = true; return CLI_OK;
    }
}

/* Check the sizes against each other, and set defaults and the shifts to show. Return CLI_OK, or CLI_USAGE after
 * printing. */
static int check(request *r)
{
    const struct {
        const char *option;
        int64_t usual, *rows;
    } sizes[] = {{"--object", 2, &r->object}, {"--window", 4, &r->window}};
    for (int n = 0; n < 2; n++) {
        if (*sizes[n].rows == 0)
            *sizes[n].rows = r->grid < sizes[n].usual ? r->grid : sizes[n].usual;
        if (*sizes[n].rows > r->grid)
            return cli_error(CLI_USAGE,
                             "%s: %lld is more than the %lld row%s of the grid (choose at most %lld, or a "
                             "larger --grid)",
                             sizes[n].option, (long long)*sizes[n].rows, (long long)r->grid, cli_s(r->grid),
                             (long long)r->grid);
    }
    if (r->by > r->grid - r->object)
        return cli_error(CLI_USAGE, "--by: a shift by %lld moves the object out of the grid (choose at most %lld)",
                         (long long)r->by, (long long)(r->grid - r->object));
    r->first = r->by < 0 ? 0 : r->by;
    r->last = r->by < 0 ? r->grid - r->object : r->by;
    return CLI_OK;
}

/* Compute row[by][kind] for the shifts to show. Return CLI_OK, or CLI_FAILED after printing. */
static int measure(const request *r, shift_change (*row)[SHIFT_KINDS])
{
    const int64_t n = r->object * r->object * r->object * r->object;
    double *score = malloc((size_t)(2 * n) * sizeof *score);
    shift_image image = {0};
    rp_status status =
        score && shift_begin(&image, r->grid, r->object, r->window, (uint64_t)r->seed) ? RP_OK : RP_E_NOMEM;
    for (int kind = 0; kind < SHIFT_KINDS && status == RP_OK; kind++) {
        status = shift_scores(&image, (shift_kind)kind, 0, score);
        for (int64_t by = r->first; by <= r->last && status == RP_OK; by++) {
            status = shift_scores(&image, (shift_kind)kind, by, score + n);
            row[by][kind] = shift_compare(n, score, score + n);
        }
    }
    shift_end(&image);
    free(score);
    return status == RP_OK ? CLI_OK : cli_error(CLI_FAILED, "shift: out of memory (close other programs)");
}

static void print_json(const request *r, shift_change (*row)[SHIFT_KINDS])
{
    printf("{\"grid\": %lld, \"object\": %lld, \"window\": %lld, \"seed\": %lld, \"shifts\": [", (long long)r->grid,
           (long long)r->object, (long long)r->window, (long long)r->seed);
    for (int64_t by = r->first; by <= r->last; by++) {
        printf("%s{\"by\": %lld", by > r->first ? ", " : "", (long long)by);
        for (int kind = 0; kind < SHIFT_KINDS; kind++) {
            printf(", \"%s\": {\"pairs\": %lld", names[kind], (long long)row[by][kind].pairs);
            cli_json_numbers(stdout, (cli_json_member[]){{"change", "%.17g", row[by][kind].largest}, {0}});
            putchar('}');
        }
        putchar('}');
    }
    puts("]}");
}

static void print_text(const request *r, shift_change (*row)[SHIFT_KINDS])
{
    const int g = (int)r->grid, o = (int)r->object, w = (int)r->window;
    shift_change most[SHIFT_KINDS] = {0};
    printf("An object of %d x %d patches moves down and to the right on a grid of %d x %d.\n", o, o, g, g);
    printf("Windows have %d x %d patches.\n\n", w, w);
    puts("         largest change of a score    pairs that attend in only one place");
    puts("shift    absolute         relative    windows            shifted windows");
    for (int64_t by = r->first; by <= r->last; by++) {
        const shift_change *c = row[by];
        printf("%5lld    %8.4f         %8.4f    %7lld            %15lld\n", (long long)by, c[SHIFT_ABSOLUTE].largest,
               c[SHIFT_RELATIVE].largest, (long long)c[SHIFT_WINDOWS].pairs, (long long)c[SHIFT_SHIFTED_WINDOWS].pairs);
        for (int kind = 0; kind < SHIFT_KINDS; kind++) {
            most[kind].largest = fmax(most[kind].largest, c[kind].largest);
            most[kind].pairs = c[kind].pairs > most[kind].pairs ? c[kind].pairs : most[kind].pairs;
        }
    }
    printf("\nScores among the object's patches change by up to %.4f with absolute positions, and\n",
           most[SHIFT_ABSOLUTE].largest);
    printf("by up to %.4f with a table of offsets. With windows, up to %lld of %d pairs attend in\n",
           most[SHIFT_RELATIVE].largest, (long long)most[SHIFT_WINDOWS].pairs, o * o * o * o);
    printf("only one of the two places; with shifted windows, up to %lld.\n",
           (long long)most[SHIFT_SHIFTED_WINDOWS].pairs);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.grid = 8, .seed = 1, .by = -1};
    shift_change row[SHIFT_MAX_GRID][SHIFT_KINDS];
    int n_args;
    int code = cli_options(self, argc, argv, on_option, &r, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    code = check(&r);
    if (code == CLI_OK)
        code = measure(&r, row);
    if (code == CLI_OK)
        (r.json ? print_json : print_text)(&r, row);
    return code;
}

const cli_command cmd_shift = {
    .name = "shift",
    .summary = "move an object over an image: which attention scores change",
    .usage = "[options]",
    .example = "  relpos shift\n  relpos shift --grid 12 --object 3 --window 6\n",
    .options = options,
    .run = run,
};
