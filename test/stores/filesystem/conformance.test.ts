/** The filesystem stores keep every promise of their doors, with sync "batch". */
import { bodiesConform, entriesConform } from './conform.ts';

entriesConform('batch');
bodiesConform('batch');
