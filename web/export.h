/* export.h -- how a function of the module gets its name in JavaScript. SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_WEB_EXPORT_H
#define RELPOS_WEB_EXPORT_H

#define EXPORT(name) __attribute__((export_name(#name)))

#endif
