/** The filesystem stores keep every promise of their doors, with sync "none". */
import { bodiesConform, entriesConform } from './conform.ts';

entriesConform('none');
bodiesConform('none');
