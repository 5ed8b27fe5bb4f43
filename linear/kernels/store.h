/* store.h -- what becomes of the sums of a block: scales of quantised types, then the store with what the call asks for.
 * Vectors past the last output are computed like others and stored in part. May not know how sums are made.
 * Parameters: VL, the verbs. */

/* p/2 (1 + tanh(u)) with u = √(2/π) (p + 0.044715 p³) is p / (1 + exp(-2u)), and for p < 0, so that nothing cancels and
 * nothing overflows, p exp(2u) / (1 + exp(2u)): an exponential of -2|u| either way. */
#define GELU_U1 -1.5957691216057308f  /* -2 √(2/π) */
#define GELU_U3 -0.07135481627159992f /* that times 0.044715 */

INLINE vf gelu(vf p)
{
    const vf e = vf_exp(vf_abs(p) * vf_fma(p * p, vf_set1(GELU_U3), vf_set1(GELU_U1)));
    return p * (vf_below(p, vf_set1(0), e, vf_set1(1)) / (e + vf_set1(1)));
}

INLINE vf finish(linear_then then, vf p, vf y)
{
    switch (then) {
    case LINEAR_ADD: return y + p;
    case LINEAR_RELU: return vf_max(vf_set1(0), p); /* the second one where it is NaN */
    case LINEAR_GELU: return gelu(p);
    case LINEAR_TIMES: return y * p;
    default: return p;
    }
}

INLINE void store_row(linear_then then, const float *sums, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c += VL) {
        const vf p = vf_load(sums + c);
        if (c + VL <= n) {
            vf_store(y + c, finish(then, p, vf_load(y + c)));
        } else {
            float lane[VL] = {0};
            memcpy(lane, y + c, (size_t)(n - c) * sizeof *y);
            vf_store(lane, finish(then, p, vf_load(lane)));
            memcpy(y + c, lane, (size_t)(n - c) * sizeof *y);
        }
    }
}

/* The sums of a row over some panels, from integers or sums of groups to the product. */
static void scale_row(const linear_job *j, int64_t row, const char *panel, int64_t n, float *sums)
{
    float x;
    memcpy(&x, j->quantised + row * j->row_bytes, sizeof x);
    for (int64_t c = 0; c < n; c += VL) {
        const linear_int8_head *head = (const void *)(panel + c / LINEAR_PANEL * j->panel_bytes);
        vf p = vf_load(sums + c);
        if (j->type == LINEAR_INT8)
            p = vf_of_vi((vi)p) * vf_load(head->scale + c % LINEAR_PANEL);
        vf_store(sums + c, p * vf_set1(x));
    }
}

/* The rows of a tile, whose sums have `full` numbers in a row: n of them from `first` on are stored. */
static void store(const tile *p, int rows, int64_t full, int64_t first, int64_t n)
{
    const linear_job *j = p->j;
    for (int r = 0; r < rows; r++) {
        float *sums = (float *)p->sums + r * full, *y = j->y + (p->row + r) * j->ldy + first;
        if (j->type >= LINEAR_INT8)
            scale_row(j, p->row + r, p->panel, full, sums);
        switch (j->then) {
        case LINEAR_STORE: store_row(LINEAR_STORE, sums, y, n); break;
        case LINEAR_ADD: store_row(LINEAR_ADD, sums, y, n); break;
        case LINEAR_RELU: store_row(LINEAR_RELU, sums, y, n); break;
        case LINEAR_GELU: store_row(LINEAR_GELU, sums, y, n); break;
        case LINEAR_TIMES: store_row(LINEAR_TIMES, sums, y, n); break;
        }
    }
}
