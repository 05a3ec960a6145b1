/** What is counted of a webhook, as hooks.part.lua packs it. */

export const tallyNames = [
  ...(['backlog', 'in', 'delivered', 'dead', 'dropped', 'batches', 'attempts', 'throttled', 'stale'] as const),
  ...(['failures', 'failingSince', 'deliveredAt', 'retrying', 'loggedAt'] as const),
]

export type Tallies = Record<(typeof tallyNames)[number], number>

export const readTallies = (packed: Buffer): Tallies =>
  Object.fromEntries(tallyNames.map((name, i) => [name, packed.readDoubleLE(8 * i)])) as Tallies
