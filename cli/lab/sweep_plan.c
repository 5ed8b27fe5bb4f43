/* sweep_plan.c -- the experiments of a sweep: every combination of the values and seeds that an experiment file lists.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/sweep.h"
#include <stdlib.h>
#include <string.h>

static void free_values(lab_plan *p, int k)
{
    while (p->n_values[k] > 0)
        free(p->values[k][--p->n_values[k]]);
}

static void free_runs(lab_plan *p)
{
    while (p->n_runs > 0)
        free(p->run[--p->n_runs]);
}

void lab_plan_free(lab_plan *p)
{
    free_runs(p);
    for (int k = 0; k < p->n_keys; k++)
        free_values(p, k);
    while (p->n_quick > 0)
        free(p->quick[--p->n_quick]);
}

static int add_quick(lab_plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    const size_t size = strlen(key) + strlen(value) + 2;
    char *line = p->n_quick < MAX_QUICK ? malloc(size) : NULL;
    if (!line)
        return nn_fail(err,
                       p->n_quick == MAX_QUICK ? "quick: there are more than %d keys (remove some)"
                                               : "lab: out of memory while reading the experiment, after %d keys "
                                                 "(close other programs)",
                       p->n_quick);
    snprintf(line, size, "%s=%s", key, value);
    p->quick[p->n_quick++] = line;
    return 0;
}

static int set_values(lab_plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    int k = 0;
    while (k < p->n_keys && strcmp(p->key[k], key) != 0)
        k++;
    if (k == MAX_KEYS)
        return nn_fail(err, "vary: there are more than %d keys (remove some)", MAX_KEYS);
    free_values(p, k); /* --quick and --set override the values in the file */
    p->n_keys += k == p->n_keys;
    snprintf(p->key[k], sizeof p->key[k], "%.39s", key);
    for (const char *from = value; from;) {
        const char *end = strchr(from, '|');
        size_t size = end ? (size_t)(end - from) : strlen(from);
        const char *next = end ? end + 1 : NULL;
        for (; size > 0 && *from == ' '; size--)
            from++;
        for (; size > 0 && from[size - 1] == ' '; size--)
            continue;
        if (p->n_values[k] == MAX_VALUES)
            return nn_fail(err, "vary.%s: there are more than %d values (remove some)", p->key[k], MAX_VALUES);
        char *copy = strndup(from, size);
        nn_config probe;
        if (!copy)
            return nn_fail(err, "lab: out of memory while reading the experiment (close other programs)");
        p->values[k][p->n_values[k]++] = copy;
        nn_config_init(&probe);
        if (nn_config_set(&probe, p->key[k], copy, err) != 0)
            return -1;
        from = next;
    }
    return 0;
}

/* Set the keys of a line "run", and list their values in `vary` (may be NULL). */
static int set_run(const lab_plan *p, const char *run, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    for (const char *from = run + strspn(run, " "); *from; from += strspn(from, " ")) {
        char key[NN_TEXT_MAX];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(from, " "), from);
        from += strcspn(from, " ");
        char *value = strchr(key, '=');
        if (!value)
            return nn_fail(err, "run: \"%.60s\" is not KEY=VALUE (write run = position=rope lr=0.004)", key);
        *value++ = 0;
        for (int k = 0; k < p->n_keys; k++)
            if (strcmp(p->key[k], key) == 0)
                return nn_fail(err, "run: %.40s also has a line vary.%.40s (remove one of them)", key, key);
        if (nn_config_set(c, key, value, err) != 0)
            return -1;
        if (vary)
            json_object_set_new(vary, key, json_string(value));
    }
    return 0;
}

static int add_run(lab_plan *p, const char *value, char err[NN_ERR_MAX])
{
    nn_config probe;
    if (p->new_runs)
        free_runs(p);
    p->new_runs = false;
    if (p->n_runs == MAX_RUNS)
        return nn_fail(err, "run: there are more than %d lines (remove some)", MAX_RUNS);
    char *copy = strdup(value);
    if (!copy)
        return nn_fail(err, "lab: out of memory while reading the experiment (close other programs)");
    p->run[p->n_runs++] = copy;
    nn_config_init(&probe);
    return set_run(p, value, &probe, NULL, err);
}

int lab_plan_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    lab_plan *p = context;
    if (strncmp(key, "quick.", strlen("quick.")) == 0)
        return add_quick(p, key + strlen("quick."), value, err);
    if (strncmp(key, "vary.", strlen("vary.")) == 0)
        return set_values(p, key + strlen("vary."), value, err);
    if (strcmp(key, "run") == 0)
        return add_run(p, value, err);
    char *end;
    p->seeds = strtoll(value, &end, 10);
    return *value && !*end && p->seeds >= 1 && p->seeds <= MAX_SEEDS
               ? 0
               : nn_fail(err, "seeds: \"%.20s\" is not a number of seeds (use 1 to %d)", value, MAX_SEEDS);
}

/* If the model has no learned arrays in position terms, reset lr_terms and weight_decay_terms to their defaults,
 * because they have no effect. */
static int reset_unused(nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    static const char *const unused[][2] = {{"lr_terms", "1"}, {"weight_decay_terms", "0"}};
    nn_model m;
    bool arrays = false;
    const int code = nn_model_plan(&m, c, err);
    for (int32_t n = 0; code == 0 && n < m.n_params; n++)
        arrays |= m.params[n].of_term;
    nn_model_destroy(&m);
    for (int k = 0; code == 0 && !arrays && k < 2; k++) {
        nn_config_set(c, unused[k][0], unused[k][1], err);
        if (json_object_get(vary, unused[k][0]))
            json_object_set_new(vary, unused[k][0], json_string(unused[k][1]));
    }
    return code;
}

/* Set the values of combination `index`. The last key changes fastest, then come the lines "run"; the seed changes
 * slowest. */
static int choose(const lab_plan *p, int64_t index, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    const char *value[MAX_KEYS];
    for (int k = p->n_keys - 1; k >= 0; k--) {
        value[k] = p->values[k][index % p->n_values[k]];
        index /= p->n_values[k];
    }
    const int run = p->n_runs > 0 ? (int)(index % p->n_runs) : -1;
    c->seed += p->n_runs > 0 ? index / p->n_runs : index;
    if (run >= 0 && set_run(p, p->run[run], c, vary, err) != 0)
        return -1;
    for (int k = 0; k < p->n_keys; k++) {
        if (nn_config_set(c, p->key[k], value[k], err) != 0)
            return -1;
        json_object_set_new(vary, p->key[k], json_string(value[k]));
    }
    return nn_config_check(c, err) == 0 ? reset_unused(c, vary, err) : -1;
}

int lab_plan_choose(const lab_plan *p, const lab_experiment *e, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    return choose(p, e->index, c, vary, err);
}

/* ------------------------------------------------------------------------------------------------ the list */

static bool is_listed(const lab_experiments *e, const char *config)
{
    for (int64_t n = 0; n < e->n; n++)
        if (strcmp(e->all[n].config, config) == 0)
            return true;
    return false;
}

/* Keep only the experiments of part `part`. */
static void keep_part(lab_experiments *e, int64_t part, int64_t parts)
{
    int64_t kept = 0, trainings = 0;
    for (int64_t n = 0, before = 0; n < e->n; n++) {
        trainings += n == 0 || e->all[n].training != e->all[before].training;
        before = n;
        if ((trainings - 1) % parts == part - 1) {
            const lab_experiment swapped = e->all[kept];
            e->all[kept++] = e->all[n];
            e->all[n] = swapped;
        }
    }
    while (e->n > kept)
        free(e->all[--e->n].config);
}

int lab_plan_list(const lab_plan *p, const nn_config *base, int64_t part, int64_t parts, lab_experiments *to,
                  char err[NN_ERR_MAX])
{
    int64_t all = p->seeds * (p->n_runs > 0 ? p->n_runs : 1);
    char config[NN_PRINT_MAX];
    for (int k = 0; k < p->n_keys; k++)
        all *= p->n_values[k];
    *to = (lab_experiments){.all = calloc((size_t)all, sizeof *to->all)};
    if (!to->all)
        return nn_fail(err, "lab: out of memory while listing %lld experiments (use fewer values)", (long long)all);
    for (int64_t x = 0; x < all; x++) {
        nn_config c = *base;
        json_t *vary = json_object();
        const int code = choose(p, x, &c, vary, err);
        json_decref(vary);
        if (code != 0)
            return -1;
        lab_identify(&c, false, config);
        if (is_listed(to, config))
            continue;
        lab_experiment *e = &to->all[to->n];
        *e = (lab_experiment){.index = x, .config = strdup(config)};
        if (!e->config)
            return nn_fail(err, "lab: out of memory while listing %lld experiments (use fewer values)", (long long)all);
        to->n++;
        e->training = lab_training_checksum(&c);
    }
    keep_part(to, part, parts);
    return 0;
}

void lab_experiments_free(lab_experiments *e)
{
    while (e->n > 0)
        free(e->all[--e->n].config);
    free(e->all);
    e->all = NULL;
}
