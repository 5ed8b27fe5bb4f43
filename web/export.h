/* export.h -- exports a function of the module to JavaScript under a given name. SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_WEB_EXPORT_H
#define RELPOS_WEB_EXPORT_H

#define EXPORT(name) __attribute__((export_name(#name)))

#endif
