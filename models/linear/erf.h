/* erf.h -- erf in f32 as x p(x²) / q(x²) for |x| up to 3.925, beyond which it is 1 in f32: the coefficients of p and of
 * q, from the highest power to the lowest.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_ERF_H
#define RELPOS_LINEAR_ERF_H

#define LINEAR_ERF_END 3.925f
#define LINEAR_ERF_ABOVE(X)                                                                                            \
    X(-2.72614225801306e-10f)                                                                                          \
    X(2.77068142495902e-08f)                                                                                           \
    X(-2.10102402082508e-06f)                                                                                          \
    X(-5.69250639462346e-05f)                                                                                          \
    X(-7.34990630326855e-04f)                                                                                          \
    X(-2.95459980854025e-03f)                                                                                          \
    X(-1.60960333262415e-02f)
#define LINEAR_ERF_UNDER(X)                                                                                            \
    X(-1.45660718464996e-05f)                                                                                          \
    X(-2.13374055278905e-04f)                                                                                          \
    X(-1.68282697438203e-03f)                                                                                          \
    X(-7.37332916720468e-03f)                                                                                          \
    X(-1.42647390514189e-02f)

#endif
