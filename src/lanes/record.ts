/** A lane's record as the scripts pack it: store.part.lua says what stands where. */

export interface LaneRecord {
  /** Place of the next item without a priority, and of the next one to come. */
  head: number
  tail: number
  /** Of what waits. */
  bytes: number
  /** Those that wait and have a priority, or were put back. */
  ranked: number
  /** Waiting for a time: delayed, or to be tried again. */
  later: number
  held: number
  dead: number
  /** How many are gone for good, since the lane last was empty. */
  left: number
  /** ms until which nothing of it is given; 0: it is. */
  notBefore: number
  /** What is left of its turn. */
  credit: number
  /** Objects that are set aside. */
  parked: number
  /** Those that wait for the one before them of their object. */
  behind: number
  /** ms up to which its rate has been used. */
  paced: number
}

/** In this order, as doubles; then a sign: a plus, and the rest is there, or dashes, and all of it is 0. */
const first: readonly (keyof LaneRecord)[] = ['head', 'tail', 'bytes', 'held', 'left']
const rest: readonly (keyof LaneRecord)[] = [
  'ranked',
  'later',
  'dead',
  'notBefore',
  'credit',
  'parked',
  'behind',
  'paced',
]
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

/** How many items have come to the lane since it last was empty. */
export const enteredIn = (record: LaneRecord): number =>
  waitingIn(record) + record.behind + record.later + record.held + record.dead + record.parked + record.left

/** How many items wait in the lane. */
export const waitingIn = ({ head, tail, ranked }: LaneRecord): number => tail - head + ranked

const placeBytes = 6

/** Under which a lane's waiting item lies. */
export function placeField(lane: string, place: number): Buffer {
  const field = Buffer.alloc(Buffer.byteLength(lane) + 1 + placeBytes)
  field.writeUIntBE(place, field.write(`${lane} `), placeBytes)
  return field
}

/** A lease as it is stored: store.part.lua says how. */
export interface LeaseRecord {
  worker: string
  start: string
  claimedMs: number
  items: { id: string; lane: string; field: Buffer }[]
}

/** Places are bytes of any value, so characters are taken for bytes. */
export function readLease(packed: Buffer): LeaseRecord {
  const text = packed.toString('latin1')
  const [head, worker, start, claimed] = /^(\S+) (\S+) (\d+)/.exec(text)!
  const items = [...text.slice(head.length).matchAll(/ (\S+) ((\S+) [\s\S]{6})(?: %\S*)?/gy)]
  return {
    ...{ worker: worker!, start: start!, claimedMs: Number(claimed) },
    items: items.map(([, id, field, lane]) => ({ id: id!, lane: lane!, field: Buffer.from(field!, 'latin1') })),
  }
}

/** Before a lane's name where it stands among what waits for a time; no item's id begins with it. */
export const throttleMark = '@'

/** As a time until which a lane waits: until someone resumes it. */
export const forever = 2 ** 52

/** The place of a lane's first item ever. */
export const firstPlace = 2 ** 40
