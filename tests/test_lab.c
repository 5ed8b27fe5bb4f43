/* test_lab.c -- the laboratory in f32, as it ships: norms, activations, residual sums and cross-entropy against their formulas in
 * double, within bounds on their rounding errors, and with the same bits on any number of threads; configurations as text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"
#include "io/io.h"
#include "nn/nn.h"
#include "starve.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const double eps = FLT_EPSILON;

/* Partial sums of 16 numbers apart, then a tree: each number is rounded so often. */
static double sum_steps(int64_t n)
{
    return (double)(n / 16 + 6);
}

static void within(const char *what, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %.9g, and %.9g is right, bound %.3g", what, got, want, bound);
}

static double sigma(double x)
{
    return 1 / (1 + exp(-x));
}

/* y = h sigmoid(u): u is rounded some times, which moves the sigmoid by s (1 - s) |u| eps; exp is within 4 eps of itself; and
 * where it would be below e^-87 it stays there. */
static double sigma_bound(double u)
{
    const double s = sigma(u);
    return eps * (s * (1 - s) * (4 * fabs(u) + 4) + 2 * s) + 4e-38;
}

static void activations(void **state)
{
    enum { N = 4001 };
    static float h[2 * N], y[2 * N], dy[N], dh[2 * N];
    const double a = 1.5957691216057308, b = 0.044715;
    (void)state;
    for (int x = 0; x < N; x++) {
        h[x] = (float)(x - N / 2) * 0.01f;
        dy[x] = (float)nn_normal(1, 1, (uint64_t)x);
    }
    nn_act_forward(NULL, NN_GELU, 1, N, h, y);
    nn_act_backward(NULL, NN_GELU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++) {
        const double z = (double)h[x], u = a * (z + b * z * z * z), s = sigma(u), du = a * (1 + 3 * b * z * z);
        within("gelu", (double)y[x], z * s, fabs(z) * sigma_bound(u));
        within("gelu, backward", (double)dh[x], (double)dy[x] * (s + z * s * (1 - s) * du),
               fabs((double)dy[x]) *
                   (sigma_bound(u) * (1 + 2 * fabs(z) * du) + 8 * eps * (s + fabs(z) * s * (1 - s) * du)));
    }
    nn_act_forward(NULL, NN_RELU, 1, N, h, y);
    nn_act_backward(NULL, NN_RELU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++)
        assert_true(y[x] == (h[x] < 0 ? 0 : h[x]) && dh[x] == (h[x] > 0 ? dy[x] : 0));
    for (int x = 0; x < N; x++) /* gates first, then what they let through */
        h[N + x] = (float)nn_normal(1, 2, (uint64_t)x);
    nn_act_forward(NULL, NN_SWIGLU, 1, N, h, y);
    nn_act_backward(NULL, NN_SWIGLU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++) {
        const double g = (double)h[x], up = (double)h[N + x], s = sigma(g), d = fabs((double)dy[x]);
        within("swiglu", (double)y[x], g * s * up, fabs(g * up) * (sigma_bound(g) + 2 * eps * s));
        within("swiglu, through", (double)dh[N + x], (double)dy[x] * g * s,
               d * fabs(g) * (sigma_bound(g) + 2 * eps * s));
        within("swiglu, gate", (double)dh[x], (double)dy[x] * up * s * (1 + g * (1 - s)),
               d * fabs(up) * (sigma_bound(g) * (1 + 2 * fabs(g)) + 8 * eps * s * (1 + fabs(g) * (1 - s))));
    }
}

static void norms(void **state)
{
    enum { ROWS = 70, N = 37 };
    static float x[ROWS * N], y[ROWS * N], dy[ROWS * N], dx[ROWS * N], gamma[N], beta[N], stat[2 * ROWS], dgamma[N],
        dbeta[N], partial[2 * N * 2];
    (void)state;
    for (int n = 0; n < ROWS * N; n++) {
        x[n] = (float)(3 * nn_normal(2, 1, (uint64_t)n) + 1);
        dy[n] = (float)nn_normal(2, 2, (uint64_t)n);
    }
    for (int c = 0; c < N; c++) {
        gamma[c] = (float)nn_normal(2, 3, (uint64_t)c);
        beta[c] = (float)nn_normal(2, 4, (uint64_t)c);
    }
    for (int kind = NN_LAYERNORM; kind <= NN_RMSNORM; kind++) {
        double want_gamma[N] = {0}, size_gamma[N] = {0};
        memset(dgamma, 0, sizeof dgamma);
        memset(dbeta, 0, sizeof dbeta);
        nn_norm_forward(NULL, kind, ROWS, N, x, gamma, kind == NN_LAYERNORM ? beta : NULL, y, stat);
        nn_norm_backward(NULL, kind, ROWS, N, x, gamma, stat, dy, false, dx, dgamma,
                         kind == NN_LAYERNORM ? dbeta : NULL, partial);
        for (int r = 0; r < ROWS; r++) {
            double mean = 0, square = 0, most = 0, first = 0, second = 0, first_size = 0;
            for (int c = 0; c < N; c++) {
                mean += kind == NN_LAYERNORM ? (double)x[r * N + c] / N : 0;
                most = fmax(most, fabs((double)x[r * N + c]));
            }
            for (int c = 0; c < N; c++)
                square += pow((double)x[r * N + c] - mean, 2) / N;
            const double s = 1 / sqrt(square + 1e-5);
            /* u is off by the mean's error, and s by half of the square's */
            const double u_most = (most + fabs(mean)) * s, u_error = eps * (sum_steps(N) + 4) * (u_most + most * s);
            for (int c = 0; c < N; c++) {
                const double u = ((double)x[r * N + c] - mean) * s, a = (double)dy[r * N + c] * (double)gamma[c];
                within("norm", (double)y[r * N + c],
                       u * (double)gamma[c] + (kind == NN_LAYERNORM ? (double)beta[c] : 0),
                       fabs((double)gamma[c]) * u_error + eps * (fabs(u * (double)gamma[c]) + fabs((double)beta[c])));
                first += kind == NN_LAYERNORM ? a / N : 0;
                first_size += fabs(a) / N;
                second += a * u / N;
                want_gamma[c] += (double)dy[r * N + c] * u;
                size_gamma[c] += fabs((double)dy[r * N + c]) * (u_error + (NN_ROWS + 4) * eps * u_most);
            }
            for (int c = 0; c < N; c++) {
                const double u = ((double)x[r * N + c] - mean) * s, a = (double)dy[r * N + c] * (double)gamma[c];
                const double size = fabs(a) + first_size + 2 * fabs(u) * first_size * u_most;
                within("norm, backward", (double)dx[r * N + c], s * (a - first - u * second),
                       s * (2 * first_size * u_most * u_error + 2 * (sum_steps(N) + 6) * eps * size +
                            eps * (sum_steps(N) + 4) * size));
            }
        }
        for (int c = 0; c < N; c++)
            within("norm, gamma", (double)dgamma[c], want_gamma[c], size_gamma[c]);
    }
}

static void cross_entropy(void **state)
{
    enum { ROWS = 40, N = 256 };
    static float z[ROWS * N], given[ROWS * N];
    int32_t target[ROWS];
    double loss[ROWS];
    (void)state;
    for (int n = 0; n < ROWS * N; n++)
        given[n] = z[n] = (float)(nn_normal(3, 1, (uint64_t)n) * (n / N));
    for (int r = 0; r < ROWS; r++)
        target[r] = r == 5 ? -1 : (r * 7) % N;
    nn_softmax_loss(NULL, ROWS, N, z, target, 0.25, loss);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, most = -INFINITY;
        for (int c = 0; c < N; c++) /* gcc 12 for AArch64 breaks down over fmax here */
            if ((double)given[r * N + c] > most)
                most = (double)given[r * N + c];
        for (int c = 0; c < N; c++)
            sum += exp((double)given[r * N + c] - most);
        if (r == 5) {
            assert_true(loss[r] == 0 && z[r * N] == 0 && z[r * N + N - 1] == 0);
            continue;
        }
        /* exp of a difference that is off by eps/2 of itself; d e^-d < 0.4 each */
        const double sum_error = eps * (sum_steps(N) + 4 + 0.4 * N) * sum;
        within("loss", loss[r], log(sum) + most - (double)given[r * N + target[r]], sum_error / sum + 1e-12);
        for (int c = 0; c < N; c++) {
            const double d = most - (double)given[r * N + c], p = exp(-d) / sum;
            within("loss, backward", (double)z[r * N + c], 0.25 * (p - (c == target[r])),
                   0.25 * (p * (eps * (d + 6) + sum_error / sum) + eps + 1e-37));
        }
    }
}

/* Dropout keeps its share, scales what it keeps, and goes back where it went forward. */
static void residual(void **state)
{
    enum { ROWS = 100, N = 100 };
    static float x[ROWS * N], z[ROWS * N], y[ROWS * N], dz[ROWS * N];
    int kept = 0;
    (void)state;
    for (int n = 0; n < ROWS * N; n++) {
        x[n] = (float)n;
        z[n] = 1;
    }
    nn_add_forward(NULL, ROWS, N, x, z, 0.25, 17, y);
    nn_add_backward(NULL, ROWS, N, 0.25, 17, z, dz);
    for (int n = 0; n < ROWS * N; n++) {
        assert_true(y[n] == x[n] || y[n] == x[n] + 1 / 0.75f);
        assert_true((dz[n] != 0) == (y[n] != x[n]));
        kept += dz[n] != 0;
    }
    assert_true(abs(kept - 7500) < 5 * 44); /* five standard deviations */
    nn_add_forward(NULL, ROWS, N, x, z, 0, 17, y);
    for (int n = 0; n < ROWS * N; n++)
        assert_true(y[n] == x[n] + 1);
}

/* Weights and gradients of a whole model, bit for bit, on one thread and on three. */
static void threads(void **state)
{
    enum { BATCH = 3, LENGTH = 150, ROWS = BATCH * LENGTH };
    char err[NN_ERR_MAX];
    int32_t tokens[ROWS], target[ROWS];
    double loss[2][ROWS], mean;
    float *g[2];
    int64_t n = 0;
    (void)state;
    if (nn_blas_open(err) != 0) {
        print_message("skipped: %s\n", err);
        skip();
    }
    for (int r = 0; r < ROWS; r++) {
        tokens[r] = (int32_t)(nn_random(4, 1, (uint64_t)r) % 256);
        target[r] = (int32_t)(nn_random(4, 2, (uint64_t)r) % 256);
    }
    for (int t = 0; t < 2; t++) {
        nn_config c;
        nn_model m;
        nn_net *net = NULL;
        rp_pool *pool;
        nn_config_init(&c);
        c.dropout = 0.1;
        c.length = LENGTH;
        snprintf(c.position, sizeof c.position, "t5+xl+band,width=4,extent=9");
        good(rp_pool_create(&pool, t ? 3 : 1));
        if (nn_model_create(&m, &c, true, err) != 0 ||
            nn_net_create(&net, &m, pool, BATCH, LENGTH, true, 0, NULL, err) != 0 ||
            nn_net_loss(net, LENGTH, tokens, target, 3, loss[t], &mean, err) != 0)
            fail_msg("%s", err);
        n = m.n_weights;
        g[t] = malloc((size_t)n * sizeof(float));
        assert_non_null(g[t]);
        assert_true(nn_adamw(&m, pool, 0) > 0);
        memcpy(g[t], m.g, (size_t)n * sizeof(float));
        nn_net_destroy(net);
        nn_model_destroy(&m);
        rp_pool_destroy(pool);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof(float));
    free(g[0]);
    free(g[1]);
}

/* The windows of steps: from all over the text, each followed by the next bytes, and other ones for each step and seed. */
static void windows(void **state)
{
    enum { N = 300, LENGTH = 20, BATCH = 2, STEPS = 2000 };
    int32_t text[N], tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    bool begun[N] = {false};
    const nn_text t = {.tokens = text, .n = N};
    int all = 0, again = 0, before = -1;
    (void)state;
    for (int n = 0; n < N; n++)
        text[n] = n % 251;
    for (int step = 0; step < STEPS; step++) {
        nn_text_batch(&t, 1, step, BATCH, LENGTH, tokens, target);
        for (int x = 0; x < BATCH * LENGTH; x++)
            assert_int_equal(target[x], (tokens[x] + 1) % 251);
        again += tokens[0] == before;
        before = tokens[0];
        for (int b = 0; b < BATCH; b++)
            begun[tokens[b * LENGTH]] = true;
    }
    for (int n = 0; n < 251; n++)
        all += begun[n];
    assert_int_equal(all, 251);
    assert_true(again < STEPS / 50);
}

/* Those of a classifier: from each file in turn, whole, from its first token to its last. */
static void windows_of_files(void **state)
{
    enum { N = 100, LENGTH = 20, BATCH = 2, STEPS = 3000 };
    int32_t text[N], tokens[BATCH * LENGTH], target[BATCH];
    int64_t end[] = {LENGTH, 60, N};
    bool begun[N] = {false};
    const nn_text t = {.tokens = text, .n = N, .end = end, .n_files = 3};
    int all = 0;
    (void)state;
    for (int n = 0; n < N; n++)
        text[n] = n;
    for (int step = 0; step < STEPS; step++) {
        nn_text_batch_files(&t, 1, step, BATCH, LENGTH, tokens, target);
        for (int b = 0; b < BATCH; b++) {
            assert_int_equal(target[b], (step * BATCH + b) % 3);
            assert_true(tokens[b * LENGTH] >= nn_text_start(&t, target[b]));
            assert_true(tokens[b * LENGTH + LENGTH - 1] < end[target[b]]);
            begun[tokens[b * LENGTH]] = true;
        }
    }
    for (int n = 0; n < N; n++)
        all += begun[n];
    assert_int_equal(all, N - 3 * (LENGTH - 1));
}

/* What is printed reads as the same. */
static void configurations(void **state)
{
    char err[NN_ERR_MAX] = "", one[NN_PRINT_MAX], two[NN_PRINT_MAX];
    nn_config c, d;
    const char *key, *value, *help;
    (void)state;
    nn_config_init(&c);
    assert_int_equal(
        nn_config_parse(&c, "a", "preset = t5\n\n# no\nlr = 1e-4 # yes\n text =  a b \nlayers=3", NULL, NULL, err), 0);
    assert_true(c.layers == 3 && c.lr == 1e-4 && c.scale == 1 && c.position_layers == 1);
    assert_string_equal(c.text, "a b");
    nn_config_print(&c, one);
    nn_config_init(&d);
    assert_int_equal(nn_config_parse(&d, "b", one, NULL, NULL, err), 0);
    nn_config_print(&d, two);
    assert_string_equal(one, two);
    for (int n = 0; nn_config_key(n, &key, &value, &help); n++)
        assert_int_equal(nn_config_set(&d, key, value, err), 0);
    assert_int_equal(nn_config_parse(&c, "c", "layers = 1\nlayers = 2", NULL, NULL, err), -1);
    assert_string_equal(err, "c:2: layers is given twice");
}

/* Weights that f16 does not have are not stored as infinity. */
static void half_weights(void **state)
{
    char err[NN_ERR_MAX] = "", warning[NN_ERR_MAX], path[] = "/tmp/relpos-XXXXXX";
    nn_config c;
    nn_model m, back;
    int64_t step;
    (void)state;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    nn_config_init(&c);
    c.width = c.mlp = 8;
    assert_int_equal(nn_model_create(&m, &c, false, err), 0);
    m.w[1] = -65519;
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_F16, err), 0);
    assert_int_equal(nn_checkpoint_read(&back, path, false, &step, warning, err), 0);
    assert_true(back.w[1] == -65504 && step == 3);
    nn_model_destroy(&back);
    m.w[1] = 65520;
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_F16, err), -1);
    assert_string_equal(err, "embedding.weight: 65520 is no number of f16 (below 65520; bf16 has it)");
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_BF16, err), 0);
    assert_int_equal(nn_checkpoint_read(&back, path, false, &step, warning, err), 0);
    assert_true(back.w[1] == 65536);
    nn_model_destroy(&back);
    nn_model_destroy(&m);
    unlink(path);
}

static void small_model(nn_model *m)
{
    char err[NN_ERR_MAX];
    nn_config c;
    nn_config_init(&c);
    c.layers = c.heads = 1;
    c.width = c.mlp = 2;
    c.vocab = 2;
    snprintf(c.position, sizeof c.position, "none");
    if (nn_model_create(m, &c, true, err) != 0)
        fail_msg("%s", err);
}

/* A file of a small model, its bytes, and how many of them are the header. */
typedef struct stored {
    char path[32];
    nn_model m;
    unsigned char *bytes;
    size_t size, header;
    int fd;
} stored;

static void store(stored *s)
{
    char err[NN_ERR_MAX] = "";
    uint64_t length;
    snprintf(s->path, sizeof s->path, "/tmp/relpos-XXXXXX");
    s->fd = mkstemp(s->path);
    assert_true(s->fd >= 0);
    close(s->fd);
    small_model(&s->m);
    if (nn_checkpoint_save(&s->m, s->path, 3, RP_F32, err) != 0)
        fail_msg("%s", err);
    s->bytes = nn_read_file(s->path, &s->size, err);
    s->fd = open(s->path, O_RDWR | O_CLOEXEC);
    assert_true(s->bytes && s->fd >= 0);
    memcpy(&length, s->bytes, sizeof length);
    s->header = (size_t)length + sizeof length;
    assert_true(s->header < s->size);
}

static void discard(stored *s)
{
    close(s->fd);
    unlink(s->path);
    free(s->bytes);
    nn_model_destroy(&s->m);
}

/* Every byte of the header with a bit changed, and replaced by what JSON is made of: the file is refused with a line that names it, or it is the same
 * model. In a process of its own, so that a signal is told with its byte. test_io has every value, without a model. */
static void damaged_bytes(void **state)
{
    stored s;
    int how = 0;
    static const char values[] = "\x01\x02\x04\x20\"\\]}9-"; /* bits, then bytes */
    size_t *at = mmap(NULL, 2 * sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(at != MAP_FAILED);
    store(&s);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char err[NN_ERR_MAX], warning[NN_ERR_MAX];
        for (int n = 1; n < NSIG; n++)
            signal(n, SIG_DFL);
        for (at[0] = 0; at[0] < s.header; at[0]++) {
            for (at[1] = 0; at[1] < sizeof values; at[1]++) {
                nn_model m;
                int64_t step = -1;
                const char changed = (char)(at[1] < 4 ? (char)s.bytes[at[0]] ^ values[at[1]] : values[at[1]]);
                err[0] = 0;
                if (pwrite(s.fd, &changed, 1, (off_t)at[0]) != 1)
                    _exit(1);
                if (nn_checkpoint_read(&m, s.path, true, &step, warning, err) != 0) {
                    if (strncmp(err, s.path, strlen(s.path)) != 0)
                        _exit(2);
                    continue;
                }
                if (step != 3 || memcmp(m.w, s.m.w, (size_t)m.n_weights * sizeof *m.w) != 0)
                    _exit(3);
                nn_model_destroy(&m);
            }
            if (pwrite(s.fd, &s.bytes[at[0]], 1, (off_t)at[0]) != 1)
                _exit(1);
        }
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("byte %zu, value %zu: %s %d", at[0], at[1], WIFEXITED(how) ? "exit code" : "signal",
                 WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    munmap(at, 2 * sizeof *at);
    discard(&s);
}

/* A run's folder with the checkpoints of steps 2 and, before it, 1. */
typedef struct run {
    char dir[32], now[64], before[64], damaged[64];
} run;

static void run_begin(run *r)
{
    char err[NN_ERR_MAX];
    nn_model m;
    snprintf(r->dir, sizeof r->dir, "/tmp/relpos-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->now, sizeof r->now, "%s/checkpoint.safetensors", r->dir);
    snprintf(r->before, sizeof r->before, "%s/previous.safetensors", r->dir);
    snprintf(r->damaged, sizeof r->damaged, "%s/damaged.safetensors", r->dir);
    small_model(&m);
    if (nn_checkpoint_write(&m, r->dir, 1, err) != 0 || nn_checkpoint_write(&m, r->dir, 2, err) != 0)
        fail_msg("%s", err);
    nn_model_destroy(&m);
}

static void run_end(const run *r)
{
    remove(r->now);
    unlink(r->before);
    unlink(r->damaged);
    assert_int_equal(rmdir(r->dir), 0);
}

/* Which step is read, -1: none, with err. */
static int64_t read_step(const run *r, char warning[NN_ERR_MAX], char err[NN_ERR_MAX])
{
    nn_model m;
    int64_t step = 0;
    err[0] = warning[0] = 0;
    if (nn_checkpoint_read(&m, r->dir, true, &step, warning, err) != 0)
        return -1;
    nn_model_destroy(&m);
    return step;
}

/* A failure that says nothing of the file is an error that names it and the reason: never older weights. */
static void failed_reads(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    struct rlimit files, none;
    run r;
    (void)state;
    static const char *const targets[] = {"checkpoint.safetensors", "/proc/self/mem", "/dev/zero",
                                          "previous.safetensors/x", "gone/away"};
    static const char *const words[] = {"cannot be opened: Too many levels",
                                        "cannot be read: Input/output error",
                                        "it is a device",
                                        "cannot be opened: Not a directory",
                                        "a link to no file",
                                        "it is a directory",
                                        "a link to no file, or no file",
                                        "Too many open files"};
    enum { LINKS = 5, DIRECTORY = LINKS, PIPE, FILES, CASES };
    for (int n = 0; n < CASES; n++) {
        run_begin(&r);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
        none = files;
        none.rlim_cur = 0;
        if (n != FILES)
            assert_int_equal(unlink(r.now), 0);
        if (n < LINKS)
            assert_int_equal(symlink(targets[n], r.now), 0);
        else if (n == DIRECTORY)
            assert_int_equal(mkdir(r.now, 0700), 0);
        else if (n == PIPE)
            assert_int_equal(mkfifo(r.now, 0600), 0);
        else
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        const int64_t step = read_step(&r, warning, err);
        setrlimit(RLIMIT_NOFILE, &files);
        if (step != -1 || !strstr(err, words[n]) || strncmp(err, r.now, strlen(r.now)) != 0)
            fail_msg("case %d: step %d: %s%s", n, (int)step, err, warning);
        struct stat st;
        assert_int_equal(lstat(r.now, &st), 0);
        assert_int_equal(access(r.damaged, F_OK), -1);
        run_end(&r);
    }
}

/* Each allocation fails, alone or with all after it. */
static void starved_reads(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    run r;
    (void)state;
    if (!STARVES)
        print_message("allocations: a sanitizer has its own: none fails\n");
    run_begin(&r);
    for (int ever = 0; ever < 2; ever++) {
        long n = 1, count;
        do {
            starve(n, ever);
            const int64_t step = read_step(&r, warning, err);
            count = starve_end();
            if (step == 2 ? warning[0] != 0 : step != -1 || !strstr(err, "memory"))
                fail_msg("allocation %ld: step %d: %s%s", n, (int)step, err, warning);
        } while (count >= n++);
        assert_true(!STARVES || n > 300);
    }
    run_end(&r);
}

/* A link at a name that a run uses for itself is replaced: what it points to stays. */
static void planted_links(void **state)
{
    static const char *const names[] = {"next.safetensors", ".previous.tmp", "previous.safetensors",
                                        "checkpoint.safetensors"};
    char err[NN_ERR_MAX], warning[NN_ERR_MAX], path[96], kept[64];
    nn_model m;
    run r;
    (void)state;
    small_model(&m);
    for (int n = 0; n < 4; n++) {
        run_begin(&r);
        snprintf(path, sizeof path, "%s/%s", r.dir, names[n]);
        snprintf(kept, sizeof kept, "%s/kept", r.dir);
        unlink(path);
        FILE *f = fopen(kept, "w");
        assert_true(f && fputs("kept", f) > 0 && fclose(f) == 0);
        assert_int_equal(symlink("kept", path), 0);
        if (nn_checkpoint_write(&m, r.dir, 3, err) != 0)
            fail_msg("%s: %s", names[n], err);
        assert_int_equal(read_step(&r, warning, err), 3);
        size_t size;
        unsigned char *bytes = nn_read_file(kept, &size, err);
        if (!bytes || strcmp((char *)bytes, "kept") != 0)
            fail_msg("%s: what it pointed to is no longer there", names[n]);
        free(bytes);
        unlink(kept);
        run_end(&r);
    }
    nn_model_destroy(&m);
}

/* What is not there, cut short or changed gives the one before, which is said. */
static void damaged_runs(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    run r;
    (void)state;
    static const long sizes[] = {-1, 0, 7, 8, 9, 100, 2000, 4000};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        run_begin(&r);
        assert_int_equal(sizes[n] < 0 ? unlink(r.now) : truncate(r.now, sizes[n]), 0);
        const int64_t step = read_step(&r, warning, err);
        if (step != 1 || !strstr(warning, "the one before it is used, of step 1") ||
            (access(r.damaged, F_OK) == 0) != (sizes[n] >= 0))
            fail_msg("cut to %ld: step %d: %s%s", sizes[n], (int)step, err, warning);
        run_end(&r);
    }
    run_begin(&r); /* both: each is named */
    assert_int_equal(unlink(r.now), 0);
    assert_int_equal(truncate(r.before, 9), 0);
    assert_int_equal(read_step(&r, warning, err), -1);
    assert_true(strstr(err, r.now) && strstr(err, "No such file") && strstr(err, r.before) && strstr(err, "cut short"));
    run_end(&r);
}

static void blas_cores(void **state)
{
    static const struct {
        const char *core, *with_avx2, *with_avx512; /* what is wanted in its place */
    } cores[] = {{"Prescott", "Haswell", "SkylakeX"},
                 {"Nehalem", "Haswell", "SkylakeX"},
                 {"Sandybridge", "Haswell", "SkylakeX"},
                 {"Barcelona", "Haswell", "SkylakeX"},
                 {"Atom", "Haswell", "SkylakeX"},
                 {"Unknown", "Haswell", "SkylakeX"},
                 {"prescott", "Haswell", "SkylakeX"},
                 {"Haswell", NULL, "SkylakeX"},
                 {"Zen", NULL, "SkylakeX"},
                 {"SkylakeX", NULL, NULL},
                 {"Cooperlake", NULL, NULL},
                 {"SapphireRapids", NULL, NULL},
                 {"a newer one", NULL, NULL},
                 {"armv8", NULL, NULL},
                 {"neoversen1", NULL, NULL},
                 {"", NULL, NULL}};
    (void)state;
    for (size_t n = 0; n < sizeof cores / sizeof *cores; n++)
        for (int set = 0; set < 4; set++) {
            const char *want = set == 0   ? NULL
                               : set == 1 ? cores[n].with_avx2
                                          : cores[n].with_avx512,
                       *found = nn_blas_core(cores[n].core, set & 1, set & 2);
            if ((want == NULL) != (found == NULL) || (want && strcmp(want, found) != 0))
                fail_msg("%s, avx2 %d, avx512 %d: %s, and %s is right", cores[n].core, set & 1, set >> 1,
                         found ? found : "none", want ? want : "none");
        }
}

/* What is loaded, in a process of its own: a library of another core than the machine's best is loaded again, one that was asked for
 * stays and is told, and so is one that does not listen. */
static void blas_loaded(void **state)
{
    static const struct {
        const char *library, *core, *asked, *deaf;
    } cases[] = {{FAKE_BLAS, "Prescott", NULL, NULL},   {FAKE_BLAS, "Haswell", NULL, NULL},
                 {FAKE_BLAS, "Prescott", "", NULL},     {FAKE_BLAS, "SkylakeX", "Nehalem", NULL},
                 {FAKE_BLAS, "Prescott", NULL, "1"},    {FAKE_BLAS, "Prescott", "Haswell", "1"},
                 {FAKE_BLAS, "Cooperlake", NULL, NULL}, {FAKE_BLAS, "armv8", NULL, NULL},
                 {PLAIN_BLAS, NULL, NULL, NULL}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        int how = 0;
        char want[64] = "a CBLAS",
             (*said)[512] = mmap(NULL, 2 * sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        const char *const keys[] = {"RELPOS_BLAS", "FAKE_CORE", "OPENBLAS_CORETYPE", "FAKE_DEAF"};
        const char *const values[] = {cases[n].library, cases[n].core, cases[n].asked, cases[n].deaf};
        const bool chosen = cases[n].asked && *cases[n].asked, deaf = cases[n].deaf != NULL;
        const char *core = chosen && !deaf ? cases[n].asked : cases[n].core;
        const char *better = core ? nn_blas_core(core, rp_isa_found("avx2") == 1, rp_isa_found("avx512") == 1) : NULL;
        const bool again = better && !chosen && !deaf;
        if (core)
            snprintf(want, sizeof want, "OpenBLAS 0.0.1 %s", again ? better : core);
        assert_true(said != MAP_FAILED);
        assert_string_equal(nn_blas_name(), ""); /* this process has loaded none */
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 4; k++)
                values[k] ? setenv(keys[k], values[k], 1) : unsetenv(keys[k]);
            const int code = nn_blas_open(said[0]);
            snprintf(said[0], sizeof said[0], "%s", nn_blas_name());
            snprintf(said[1], sizeof said[1], "%s", nn_blas_note());
            const char *left = getenv("OPENBLAS_CORETYPE");
            _exit(code != 0 || (chosen ? !left || strcmp(left, cases[n].asked) != 0 : left && *left));
        }
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        if (how != 0 || strcmp(said[0], want) != 0 || (said[1][0] != 0) != (better && !again) ||
            (said[1][0] && (!strstr(said[1], core) || !strstr(said[1], better) ||
                            !strstr(said[1], chosen ? "unset it" : "RELPOS_BLAS"))))
            fail_msg("case %zu: %d: %s; %s; and %s is right", n, how, said[0], said[1], want);
        munmap(said, 2 * sizeof *said);
    }
}

/* An OpenBLAS that does not know the core it is asked for takes its slowest: the best that it has is kept. */
static void blas_of_old(void **state)
{
    static const char *const by_itself[] = {"Haswell", "Prescott"};
    (void)state;
    for (int n = 0; n < 2; n++) {
        char *said = mmap(NULL, 512, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), err[NN_ERR_MAX];
        const bool better = rp_isa_found("avx2") == 1;
        int how = 0;
        assert_true(said != MAP_FAILED);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            setenv("RELPOS_BLAS", FAKE_BLAS, 1);
            setenv("FAKE_CORE", by_itself[n], 1);
            setenv("FAKE_KNOWS", "Haswell", 1);
            unsetenv("OPENBLAS_CORETYPE");
            const int code = nn_blas_open(err);
            snprintf(said, 512, "%s", nn_blas_name());
            _exit(code != 0 || getenv("OPENBLAS_CORETYPE") != NULL);
        }
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        assert_int_equal(how, 0);
        assert_non_null(strstr(said, better ? "Haswell" : by_itself[n]));
        munmap(said, 512);
    }
}

/* Memory for the buffers of a CBLAS is asked for before it is needed, since OpenBLAS would wait for it for ever. */
static void blas_memory(void **state)
{
    char err[NN_ERR_MAX] = "";
    (void)state;
    assert_int_equal(nn_blas_memory(2, err), 0);
    for (int n = 1; STARVES && n <= 3; n++) { /* the list, and the two buffers */
        starve(n, true);
        const int code = nn_blas_memory(2, err);
        assert_int_equal(starve_end(), n);
        assert_int_equal(code, -1);
        assert_non_null(strstr(err, "not enough memory for the CBLAS"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blas_cores),     cmocka_unit_test(blas_loaded),   cmocka_unit_test(blas_of_old),
        cmocka_unit_test(blas_memory),    cmocka_unit_test(activations),   cmocka_unit_test(norms),
        cmocka_unit_test(cross_entropy),  cmocka_unit_test(residual),      cmocka_unit_test(threads),
        cmocka_unit_test(configurations), cmocka_unit_test(windows),       cmocka_unit_test(windows_of_files),
        cmocka_unit_test(half_weights),   cmocka_unit_test(damaged_bytes), cmocka_unit_test(failed_reads),
        cmocka_unit_test(starved_reads),  cmocka_unit_test(damaged_runs),  cmocka_unit_test(planted_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
