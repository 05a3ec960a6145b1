/** A lane's record as the scripts pack it: store.part.lua says what stands where. */

export interface LaneRecord {
  waiting: number
  /** Of what waits. */
  bytes: number
  /** Of those that wait, the ones with a priority. */
  ranked: number
  /** Waiting for a time: delayed, or to be tried again. */
  later: number
  held: number
  dead: number
  /** Ever, since the lane last was empty. */
  entered: number
  left: number
  /** ms until which nothing of it is given; 0: it is. */
  notBefore: number
  /** What is left of its turn. */
  credit: number
}

/** In this order, eight bytes each. */
const fields: readonly (keyof LaneRecord)[] = [
  'waiting',
  'bytes',
  'ranked',
  'later',
  'held',
  'dead',
  'entered',
  'left',
  'notBefore',
  'credit',
]

export function readRecord(packed: Buffer): LaneRecord {
  const numbers = fields.map((name, i) => [name, Number(packed.readBigUInt64BE(8 * i))])
  return Object.fromEntries(numbers) as unknown as LaneRecord
}
