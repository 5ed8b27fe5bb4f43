/* values.c -- reads the values of the keys of a config.json.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/values.h"
#include "checkpoint/error.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void model_fault(model_reader *r, const char *key, const char *why)
{
    if (r->status == RP_OK)
        r->status = model_fail(RP_E_ARG, "%s: \"%s\" %s", r->path, key, why);
}

const json_t *model_value(const model_reader *r, const char *key)
{
    const json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

const char *model_describe_number(const json_t *v, char given[64])
{
    const double x = json_number_value(v);
    given[0] = 0;
    if (json_is_integer(v))
        snprintf(given, 64, " (it is %lld)", (long long)json_integer_value(v));
    else if (json_is_real(v) && x == trunc(x) && fabs(x) < 1e15)
        snprintf(given, 64, " (it is %.1f: write %.0f)", x, x);
    else if (json_is_real(v))
        snprintf(given, 64, " (it is %g)", x);
    return given;
}

bool model_is_integer(const model_reader *r, const char *key, const json_t *v, int64_t min, int64_t max, int64_t *x)
{
    char word[64];
    const double real = json_number_value(v);
    snprintf(word, sizeof word, " %s ", key);
    if (json_is_integer(v))
        *x = json_integer_value(v);
    else if (json_is_real(v) && real == trunc(real) && fabs(real) < 1e15 && r->as_reals != NULL &&
             strstr(r->as_reals, word) != NULL)
        *x = (int64_t)real;
    else
        return false;
    return *x >= min && *x <= max;
}

int64_t model_integer(model_reader *r, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const json_t *v = model_value(r, key);
    int64_t x;
    char why[160], given[64];
    if (v == NULL)
        return fallback;
    if (model_is_integer(r, key, v, min, max, &x))
        return x;
    snprintf(why, sizeof why, "is not a whole number from %lld to %lld%s", (long long)min, (long long)max,
             model_describe_number(v, given));
    model_fault(r, key, why);
    return fallback;
}

static void missing(model_reader *r, const char *key)
{
    char why[96];
    snprintf(why, sizeof why, "is missing (it is not the config.json of %s)", r->kind);
    model_fault(r, key, why);
}

int64_t model_size(model_reader *r, const char *key, const char *other, int64_t fallback, int64_t max)
{
    const json_t *v = model_value(r, key), *o = other != NULL ? model_value(r, other) : NULL;
    char why[96];
    if (v == NULL && o == NULL && fallback == 0)
        missing(r, key);
    if (v != NULL && o != NULL && json_equal(v, o) == 0) {
        snprintf(why, sizeof why, "and its other name \"%s\" have different values (remove one of them)", other);
        model_fault(r, key, why);
    }
    return model_integer(r, v == NULL && o != NULL ? other : key, fallback > 0 ? fallback : 1, 1, max);
}

double model_number(model_reader *r, const char *key, double fallback, double min, double max)
{
    const json_t *v = model_value(r, key);
    char why[160], given[64];
    if (v == NULL)
        return fallback;
    if (json_is_number(v) && json_number_value(v) >= min && json_number_value(v) <= max)
        return json_number_value(v);
    snprintf(why, sizeof why, "is not a number from %g to %g%s", min, max, model_describe_number(v, given));
    model_fault(r, key, why);
    return fallback;
}

bool model_boolean(model_reader *r, const char *key, bool fallback)
{
    const json_t *v = model_value(r, key);
    if (v == NULL)
        return fallback;
    if (!json_is_boolean(v))
        model_fault(r, key, "is neither true nor false");
    return json_is_true(v);
}

bool model_condition(model_reader *r, const char *key, bool fallback)
{
    return json_is_null(json_object_get(r->root, key)) ? false : model_boolean(r, key, fallback);
}

const char *model_string(model_reader *r, const char *key, const char *fallback)
{
    const json_t *v = model_value(r, key);
    if (v == NULL)
        return fallback;
    if (!json_is_string(v)) {
        model_fault(r, key, "is not a text");
        return fallback;
    }
    return json_string_value(v);
}
