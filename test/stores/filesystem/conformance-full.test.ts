/** The filesystem stores keep every promise of their doors, with sync "full". */
import { bodiesConform, entriesConform } from './conform.ts';

entriesConform('full');
bodiesConform('full');
