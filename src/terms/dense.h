/* terms/dense.h -- an array of biases: bias[b,h,i,j], broadcast. -infinity masks its pair. */

static void dense_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)t, (void)index;
    *s = (rpi_shape){.ndim = 4, .min_ndim = 0, .ones = 15u, .n = {d->batch, d->heads, d->len_q, d->len_k}};
}

static double dense_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], p->b, p->h, p->i, p->j);
}

static void dense_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->b, p->h, p->i, p->j, g);
}

RPI_SCHEME(DENSE, .form = RPI_TILE, .in_place = true, .array = {RPI_LEARN("bias")}, .shape = dense_shape,
           .pair = dense_pair, .grad = dense_grad)
