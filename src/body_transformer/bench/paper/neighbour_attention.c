/* Attention over a neighbour list, one sample and one head: scores, softmax and values only where the mask is True.

   Compiled by compiled.py, once with REAL = float and once with REAL = double. Rows of q, k, v and out are a whole number
   of vectors wide; arrays are contiguous. */

#include <math.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES (64 / (int)sizeof(REAL))

/* 64 bytes at any address, and their halves; the compiler splits them where registers are narrower */
typedef REAL vector __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));
typedef REAL half __attribute__((vector_size(32), aligned(sizeof(REAL)), may_alias));
typedef REAL quarter __attribute__((vector_size(16), aligned(sizeof(REAL)), may_alias));

/* Explicit halving: compilers add the lanes one by one, which costs more than the products. */
INLINE REAL sum_lanes(vector x) {
    const half *halves = (const half *)&x;
    const half h = halves[0] + halves[1];
    const quarter *quarters = (const quarter *)&h;
    const quarter rest = quarters[0] + quarters[1];
    REAL sum = rest[0];
    for (int lane = 1; lane < LANES / 4; lane++) sum += rest[lane];
    return sum;
}

INLINE REAL dot(const vector *a, const vector *b, int width) {
    vector products = a[0] * b[0];
    for (int p = 1; p < width; p++) products += a[p] * b[p];
    return sum_lanes(products);
}

/* Compute the scores of one row, minus the largest of them. */
INLINE void score(const vector *query, const vector *k, const int32_t *row, int degree, int width, REAL scale,
                  REAL *scores) {
    REAL largest = -INFINITY;
    for (int e = 0; e < degree; e++) {
        scores[e] = scale * dot(query, k + (int64_t)row[e] * width, width);
        largest = scores[e] > largest ? scores[e] : largest;
    }
    for (int e = 0; e < degree; e++) scores[e] -= largest;
}

/* Average one row's values under weights that need not sum to one. */
INLINE void average(const REAL *weights, const vector *v, const int32_t *row, int degree, int width, vector *out) {
    REAL sum = 0;
    vector total[width];
    for (int p = 0; p < width; p++) total[p] = (vector){0};
    for (int e = 0; e < degree; e++) {
        const vector *value = v + (int64_t)row[e] * width;
        sum += weights[e];
        for (int p = 0; p < width; p++) total[p] += weights[e] * value[p];
    }
    for (int p = 0; p < width; p++) out[p] = total[p] * (1 / sum);
}

INLINE void attend(const vector *q, const vector *k, const vector *v, const int32_t *starts, const int32_t *neighbours,
                   int64_t num_nodes, int width, REAL scale, REAL *weights, vector *out) {
    for (int64_t i = 0; i < num_nodes; i++) {
        const int32_t start = starts[i];
        score(q + i * width, k, neighbours + start, starts[i + 1] - start, width, scale, weights + start);
    }
    /* one loop over all rows: a row alone is shorter than a vector */
    for (int32_t e = 0; e < starts[num_nodes]; e++) weights[e] = EXP(weights[e]);
    for (int64_t i = 0; i < num_nodes; i++) {
        const int32_t start = starts[i];
        average(weights + start, v, neighbours + start, starts[i + 1] - start, width, out + i * width);
    }
}

/* A width known at compile time keeps the total of a row in registers. */
#define WIDTH(width)                                                                            \
    case width:                                                                                 \
        attend(q, k, v, starts, neighbours, num_nodes, width, (REAL)scale, weights, out);       \
        break;

/* q, k, v, out: [num_nodes, dim]; starts: [num_nodes + 1]; weights: one number per neighbour. */
void neighbour_attention(const vector *q, const vector *k, const vector *v, const int32_t *starts,
                         const int32_t *neighbours, int64_t num_nodes, int64_t dim, double scale, REAL *weights,
                         vector *out) {
    switch (dim / LANES) {
        WIDTH(1)
        WIDTH(2)
        WIDTH(4)
        WIDTH(8)
        WIDTH(16)
    }
}
