/** A lane's record as the scripts pack it: store.part.lua says what stands where. */

export interface LaneRecord {
  /** Place of the next item without a priority, and of the next one to come. */
  head: number
  tail: number
  /** Of what waits. */
  bytes: number
  /** Those that wait and have a priority. */
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
  'head',
  'tail',
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
  const numbers = fields.map((name, i) => [name, Number(packed.readBigInt64BE(8 * i))])
  return Object.fromEntries(numbers) as unknown as LaneRecord
}

/** How many items wait in the lane. */
export const waitingIn = ({ head, tail, ranked }: LaneRecord): number => tail - head + ranked

const placeBytes = 6

/** Under which a lane's waiting item lies. */
export function placeField(lane: string, place: number): Buffer {
  const field = Buffer.alloc(Buffer.byteLength(lane) + 1 + placeBytes)
  field.writeUIntBE(place, field.write(`${lane} `), placeBytes)
  return field
}

/** The place of a lane's first item ever. */
export const firstPlace = 2 ** 40
