// story.js -- the steps of the story, in order. A step is an object like a view. SPDX-License-Identifier: Apache-2.0
import {beyond} from './beyond.js';
import {buckets} from './buckets.js';
import {model} from './byte_model.js';
import {dials} from './dials.js';
import {bias, order} from './order.js';
import {slopes} from './slopes.js';
import {vectors} from './vectors.js';

export const story = [order, bias, slopes, buckets, vectors, dials, beyond, model];
