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

/** In this order, as doubles; then a sign: a plus, and the rest is there, or dashes, and all of it is 0. */
const first: readonly (keyof LaneRecord)[] = ['head', 'tail', 'bytes', 'held', 'entered', 'left']
const rest: readonly (keyof LaneRecord)[] = ['ranked', 'later', 'dead', 'notBefore', 'credit']
const restAt = 8 * first.length + 1
const hasRest = '+'.charCodeAt(0)

export function readRecord(packed: Buffer): LaneRecord {
  const isThere = packed[restAt - 1] === hasRest
  const numbers = [
    ...first.map((name, i) => [name, packed.readDoubleLE(8 * i)]),
    ...rest.map((name, i) => [name, isThere ? packed.readDoubleLE(restAt + 8 * i) : 0]),
  ]
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
