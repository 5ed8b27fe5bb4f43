/* test_layouts.c -- memory layouts: any strides, no access outside of an array, elements that are far apart.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

/* Copy a contiguous array to another layout. `order` lists the axes from slowest to fastest; `backwards` has a bit for
 * each axis to reverse. `gap` elements separate rows of the last axis. The first element is at offset `skew`. */
static rp_array laid_out(problem *p, const rp_array *a, const int *order, int backwards, int64_t gap, int64_t skew)
{
    rp_array to = *a;
    const int last = a->ndim - 1;
    int64_t step = 1, total;
    for (int n = last; n >= 0; n--) {
        const int x = order[n];
        to.stride[x] = step;
        step *= a->shape[x] > 0 ? a->shape[x] : 1;
        if (n == last)
            step += gap;
    }
    total = step + skew;
    char *room = problem_alloc(p, (size_t)total * rp_dtype_size(a->dtype));
    assert_non_null(room);
    memset(room, 0xc3, (size_t)total * rp_dtype_size(a->dtype));
    to.data = room + (size_t)skew * rp_dtype_size(a->dtype);
    for (int x = 0; x < last; x++)
        if (backwards >> x & 1) {
            to.data = (char *)to.data + (a->shape[x] - 1) * to.stride[x] * (int64_t)rp_dtype_size(a->dtype);
            to.stride[x] = -to.stride[x];
        }
    const size_t size = rp_dtype_size(a->dtype);
    for (int64_t n = 0; n < problem_size(a); n++) {
        int64_t rest = n, where = 0;
        for (int x = last; x >= 0; x--) {
            where += rest % a->shape[x] * to.stride[x];
            rest /= a->shape[x];
        }
        memcpy((char *)to.data + where * (int64_t)size, (char *)a->data + n * (int64_t)size, size);
    }
    return to;
}

/* Return the address of element n of a strided array, counted in row-major order. */
static void *element(const rp_array *a, int64_t n)
{
    int64_t where = 0;
    for (int x = a->ndim - 1; x >= 0; x--) {
        where += n % a->shape[x] * a->stride[x];
        n /= a->shape[x];
    }
    return (char *)a->data + where * (int64_t)rp_dtype_size(a->dtype);
}

/* Axes in any order, reversed, with gaps, or with strides of 0: the bits stay the same, and nothing is written between
 * elements. */
static void strides_change_no_bit(void **state)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}, {1, 2, 0, 3}};
    static const char *const texts[] = {
        "b2h4g2q23k75d7v5:t5+dense+relkey,left=3,right=3+relval,left=2,right=4:mask+key_mask",
        "b2h4g2q23k75d8v9:rope+table,left=3,right=3:causal+lengths",
        "b2h4g4q40k40d5v17:alibi:segments",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_ISA(isa)
        {
            pose(&p, 50, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F32);
            attend(&p, isa);
            const rp_tensors kept = p.t;
            rp_array *const all[] = {&p.t.q,       &p.t.k,       &p.t.v,        &p.t.out,    &p.t.lse,
                                     &p.t.weights, &p.t.profile, &p.t.key_mass, &p.t.entropy};
            const char *const names[] = {"q", "k", "v", "out", "lse", "weights", "profile", "key_mass", "entropy"};
            for (int form = 0; form < 8; form++) {
                p.t = kept;
                const int memory = p.n_memory;
                for (int x = 0; x < 9; x++) {
                    static const int three[][3] = {{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}};
                    *all[x] = laid_out(&p, all[x], all[x]->ndim == 4 ? orders[form % 4] : three[form % 4],
                                       form / 2 % 2 * (form + x), form % 3, form > 0);
                }
                for (int32_t t = 0; t < p.desc.n_terms; t++)
                    if (p.t.term[t][0].data) {
                        rp_array *a = &p.t.term[t][0];
                        static const int turned_order[5][4] = {{0}, {0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}};
                        *a = laid_out(&p, a, turned_order[a->ndim], form * 3, 1, 1);
                    }
                for (int32_t m = 0; m < p.desc.n_masks; m++)
                    if (p.t.mask[m].data) {
                        rp_array *a = &p.t.mask[m];
                        static const int turned_order[5][4] = {{0}, {0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}};
                        *a = laid_out(&p, a, turned_order[a->ndim], form * 5, 1, 1);
                    }
                for (int x = 3; x < 9; x++) /* outputs: only their elements may change */
                    for (int64_t e = 0; e < problem_size(all[x]); e++)
                        memset(element(all[x], e), 0x11, 4);
                attend(&p, isa);
                const rp_array *was[] = {&kept.q,       &kept.k,       &kept.v,        &kept.out,    &kept.lse,
                                         &kept.weights, &kept.profile, &kept.key_mass, &kept.entropy};
                for (int x = 3; x < 9; x++) {
                    for (int64_t e = 0; e < problem_size(all[x]); e++) {
                        if (memcmp(element(all[x], e), (float *)was[x]->data + e, 4) != 0)
                            wrong(&p, isa, "form %d: %s[%lld] differs", form, names[x], (long long)e);
                        memset(element(all[x], e), 0xc3, 4);
                    }
                    unsigned char *room = p.memory[memory + x];
                    for (int64_t e = 0; e < problem_size(all[x]) * 4; e++)
                        if (room[e] != 0xc3)
                            wrong(&p, isa, "form %d: %s was written outside its elements", form, names[x]);
                }
                while (p.n_memory > memory)
                    free(p.memory[--p.n_memory]);
            }
            /* strides of 0: all heads and batch entries share k and v */
            p.t = kept;
            p.t.k.stride[0] = p.t.k.stride[1] = p.t.v.stride[0] = p.t.v.stride[1] = 0;
            attend(&p, isa);
            float *want = copy_of(&p.t.out);
            p.t.k = kept.k;
            p.t.v = kept.v;
            const int64_t one_k = p.desc.len_k * p.desc.dim_k, one_v = p.desc.len_k * p.desc.dim_v;
            for (int64_t x = 1; x < 2 * p.t.k.shape[1]; x++) {
                memcpy((float *)p.t.k.data + x * one_k, p.t.k.data, (size_t)one_k * 4);
                memcpy((float *)p.t.v.data + x * one_v, p.t.v.data, (size_t)one_v * 4);
            }
            same_out(&p, isa, "strides of 0", want);
            free(want);
            /* strides of 0 over keys: all keys and all values of a head are one row */
            p.t.k.stride[2] = p.t.v.stride[2] = 0;
            attend(&p, isa);
            want = copy_of(&p.t.out);
            p.t.k = kept.k;
            p.t.v = kept.v;
            for (int64_t x = 0; x < 2 * p.t.k.shape[1] * p.desc.len_k; x++)
                if (x % p.desc.len_k != 0) {
                    const int64_t first = x - x % p.desc.len_k;
                    memcpy((float *)p.t.k.data + x * p.desc.dim_k, (float *)p.t.k.data + first * p.desc.dim_k,
                           (size_t)p.desc.dim_k * 4);
                    memcpy((float *)p.t.v.data + x * p.desc.dim_v, (float *)p.t.v.data + first * p.desc.dim_v,
                           (size_t)p.desc.dim_v * 4);
                }
            same_out(&p, isa, "strides of 0 over keys", want);
            free(want);
            problem_free(&p);
        }
}

/* Place each array and the scratch memory directly before an inaccessible page, then directly after one. */
static void nothing_outside_an_array_is_touched(void **state)
{
    static const char *const texts[] = {
        "b2h2g1q13k37d7v5:t5,buckets=8+dense+relkey,left=3,right=3+relval,left=2,right=4:mask+key_mask",
        "b1h2q7k9d3v1:table,left=3,right=3+dense+dense:causal+lengths",
        "b1h1q97k64d16v16:dense+alibi:mask",
        "b1h1q6k512d8v8:dense+rope:segments",
        "b1h1q1k1d1v1:dense:mask",
        "b2h2q17k17d65v33:relval,left=20,right=20+relkey,left=20,right=20:segments+softcap=4",
        "b1h1q5k530d4v4o500:relkey,left=1100,right=1100+relval,left=1100,right=1100:causal",
        "b1h1q100k65d6v7:relkey,left=0,right=0+relval,left=0,right=0:window=9,9",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        char text[300];
        snprintf(text, sizeof text, "%s", texts[n]);
        if (strstr(text, "segments") && !strstr(text, "q17k17")) /* segments need equal numbers of queries and keys */
            memcpy(strstr(text, "segments"), "key_mask", 8);
        pose(&p, 51, "fwd:f32:%s", text);
        also(&p, WITH_ALL, RP_F64);
        rp_array *all[9 + RP_MAX_TERMS + RP_MAX_MASKS] = {
            &p.t.out, &p.t.lse, &p.t.weights, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.q, &p.t.k, &p.t.v};
        int count = 9;
        for (int32_t t = 0; t < p.desc.n_terms; t++)
            if (p.t.term[t][0].data)
                all[count++] = &p.t.term[t][0];
        for (int32_t m = 0; m < p.desc.n_masks; m++)
            if (p.t.mask[m].data)
                all[count++] = &p.t.mask[m];
        EACH_PATH(isa)
        {
            attend(&p, isa);
            unsigned char *want[6];
            for (int x = 0; x < 6; x++)
                want[x] = copy_of(all[x]);
            for (int after = 0; after < 2; after++) {
                fence f[9 + RP_MAX_TERMS + RP_MAX_MASKS];
                void *kept[9 + RP_MAX_TERMS + RP_MAX_MASKS];
                for (int x = 0; x < count; x++) {
                    const size_t bytes = (size_t)problem_size(all[x]) * rp_dtype_size(all[x]->dtype);
                    f[x] = fence_of(bytes, after);
                    memcpy(f[x].data, all[x]->data, bytes);
                    if (x < 6)
                        memset(f[x].data, 0x11, bytes);
                    kept[x] = all[x]->data;
                    all[x]->data = f[x].data;
                }
                rp_plan *plan;
                p.desc.isa = isa;
                good(rp_plan_create(&plan, &p.desc));
                const size_t bytes = rp_plan_work_size(plan, NULL);
                fence w = fence_of((bytes + 63) / 64 * 64, after);
                assert_true((uintptr_t)w.data % 64 == 0);
                good(rp_attend(plan, &p.t, w.data));
                if (!fence_intact(&w, bytes))
                    wrong(&p, isa, "written outside of work");
                fence_free(&w);
                rp_plan_destroy(plan);
                for (int x = 0; x < count; x++) {
                    const size_t size = (size_t)problem_size(all[x]) * rp_dtype_size(all[x]->dtype);
                    if (!fence_intact(&f[x], size))
                        wrong(&p, isa, "written outside of array %d", x);
                    if (x < 6)
                        same_bits(&p, isa, "fenced output", want[x], f[x].data, size);
                    fence_free(&f[x]);
                    all[x]->data = kept[x];
                }
            }
            for (int x = 0; x < 6; x++)
                free(want[x]);
        }
        problem_free(&p);
    }
}

/* Elements that are more than 2^31 or 2^32 from the first, in memory that is reserved but mostly untouched. */
static void far_elements_are_found(void **state)
{
    problem p;
    (void)state;
    const int64_t step = ((int64_t)1 << 31) + 16, most = 6 * step;
    char *room[8];
    for (int n = 0; n < 8; n++) {
        const int64_t bytes = most * 4 + (1 << 20);
        room[n] = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room[n] == MAP_FAILED) {
            print_message("far elements: not run, because %lld bytes of address space are not available\n",
                          (long long)bytes);
            while (n-- > 0)
                munmap(room[n], (size_t)bytes);
            return;
        }
    }
    for (int axis = 0; axis < 3; axis++)
        EACH_ISA(isa)
        {
            pose(&p, 52, "fwd:f32:b%dh%dq%dk%dd5v3:dense+relkey,left=1,right=1+table,left=1,right=1:mask",
                 axis == 0 ? 3 : 1, axis == 1 ? 3 : 2, axis == 2 ? 3 : 7, axis == 2 ? 3 : 9);
            also(&p, WITH_WEIGHTS, RP_F32);
            attend(&p, isa);
            const rp_tensors kept = p.t;
            rp_array *all[] = {&p.t.q,       &p.t.k,          &p.t.v,          &p.t.out,
                               &p.t.weights, &p.t.term[0][0], &p.t.term[1][0], &p.t.mask[0]};
            for (int x = 0; x < 8; x++) {
                const rp_array was = *all[x];
                const int a = x == 6 ? was.ndim - 2 : axis; /* relkey: enlarge the stride between its vectors */
                all[x]->data = room[x];
                all[x]->stride[a] = x % 3 ? step : -step;
                for (int y = 0; y < a; y++) /* the axes before it have few elements, so strides of 4096 suffice */
                    all[x]->stride[y] = 4096 * (y == 1 ? 1 : 4);
                if (all[x]->stride[a] < 0)
                    all[x]->data = room[x] + (was.shape[a] - 1) * step * (int64_t)rp_dtype_size(was.dtype);
                const size_t size = rp_dtype_size(was.dtype);
                for (int64_t e = 0; e < problem_size(&was); e++)
                    memcpy(element(all[x], e), (char *)was.data + e * (int64_t)size, size);
            }
            attend(&p, isa);
            for (int64_t e = 0; e < problem_size(&kept.out); e++)
                if (memcmp(element(&p.t.out, e), (float *)kept.out.data + e, 4) != 0)
                    wrong(&p, isa, "axis %d with a large stride: out[%lld] has other bits", axis, (long long)e);
            for (int64_t e = 0; e < problem_size(&kept.weights); e++)
                if (memcmp(element(&p.t.weights, e), (float *)kept.weights.data + e, 4) != 0)
                    wrong(&p, isa, "axis %d with a large stride: weights[%lld] has other bits", axis, (long long)e);
            problem_free(&p);
        }
    for (int n = 0; n < 8; n++)
        munmap(room[n], (size_t)(most * 4 + (1 << 20)));
}

/* Keys stored as [channels][keys] give the same bits, for one query and for more, at the edges of vectors, panels and
 * tiles. Nothing is read past the last element. */
static void transposed_keys_change_no_bit(void **state)
{
    static const char *const texts[] = {
        "b2h4g%dq%dk%dd%dv9:t5:causal",
        "b1h4g%dq%dk%dd%dv8:rope+table,left=3,right=3:key_mask",
        "b1h2g%dq%dk%dd%dv64:",
        "b1h2g%dq%dk%dd%dv16:xl:window=9,9",
        "b1h2g%dq%dk%dd%dv16:relkey,left=3,right=3:",
    };
    static const int keys[] = {1, 2, 15, 16, 17, 63, 64, 65, 128, 129, 511, 512, 577}, queries[] = {1, 2, 7};
    static const char *const types[] = {"f32", "bf16", "f16", "f64"};
    static const int channels[] = {64, 20, 1, 33};
    int turn = 0;
    (void)state;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        for (size_t text = 0; text < sizeof texts / sizeof *texts; text++, turn++)
            EACH_PATH(path)
            {
                char shape[100];
                problem p;
                const int few = queries[turn % 3], q = few < keys[n] ? few : keys[n];
                snprintf(shape, sizeof shape, texts[text], text < 2 && turn % 5 ? 4 : turn % 2 + 1, q, keys[n],
                         text == 1 || text > 2 ? 20 : channels[turn / 3 % 4]);
                pose(&p, 51, "fwd:%s:%s", types[turn % 4], shape);
                also(&p, WITH_LSE, RP_F32);
                attend(&p, path);
                const rp_tensors kept = p.t;
                p.t.k = transposed(&p, &kept.k);
                const size_t bytes = (size_t)problem_size(&p.t.k) * rp_dtype_size(p.t.k.dtype);
                fence f = fence_of(bytes, 1);
                memcpy(f.data, p.t.k.data, bytes);
                p.t.k.data = f.data;
                p.t.out = array_in(&p, kept.out.dtype, 4, kept.out.shape);
                p.t.lse = array_in(&p, RP_F32, 3, kept.lse.shape);
                attend(&p, path);
                same_bits(&p, path, "transposed keys: out", kept.out.data, p.t.out.data,
                          (size_t)problem_size(&p.t.out) * rp_dtype_size(p.t.out.dtype));
                same_bits(&p, path, "transposed keys: lse", kept.lse.data, p.t.lse.data,
                          (size_t)problem_size(&p.t.lse) * 4);
                fence_free(&f);
                problem_free(&p);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(transposed_keys_change_no_bit),
        cmocka_unit_test(nothing_outside_an_array_is_touched),
        cmocka_unit_test(far_elements_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
