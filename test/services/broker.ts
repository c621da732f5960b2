/** broker — the variable in which the tests find who gives them servers. */

export const BROKER_VARIABLE = 'RESPOOL_TEST_BROKER';
