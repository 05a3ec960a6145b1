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
/** Names of workers are short. */
const mostHead = 600

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

/** Two lists of texts in MessagePack follow the words: fields, which are bytes of any value, and ids. */
export function readLease(packed: Buffer): LeaseRecord {
  const [head, worker, start, claimed] = /^(\S+) (\S+) (\d+) /.exec(packed.toString('latin1', 0, mostHead))!
  const fields = readTexts(packed, Buffer.byteLength(head, 'latin1'))
  const ids = readTexts(packed, fields.end)
  return {
    ...{ worker: worker!, start: start!, claimedMs: Number(claimed) },
    items: fields.texts.map((field, i) => ({
      ...{ id: String(ids.texts[i]), lane: field.toString('utf8', 0, field.length - 1 - placeBytes), field },
    })),
  }
}

/** Of a list in MessagePack, as Redis writes it, whose items are texts of less than 64 kB. */
function readTexts(packed: Buffer, at: number): { texts: Buffer[]; end: number } {
  const kind = packed[at]!
  const [size, from] = kind === 0xdc ? [packed.readUInt16BE(at + 1), at + 3] : [kind & 0x0f, at + 1]
  const texts: Buffer[] = []
  let end = from
  for (let i = 0; i < size; i += 1) {
    const mark = packed[end]!
    const start = end + (mark === 0xda ? 3 : mark === 0xd9 ? 2 : 1)
    const length = mark === 0xda ? packed.readUInt16BE(end + 1) : mark === 0xd9 ? packed[end + 1]! : mark & 0x1f
    end = start + length
    texts.push(packed.subarray(start, end))
  }
  return { texts, end }
}

/** Before a lane's name where it stands among what waits for a time; no item's id begins with it. */
export const throttleMark = '@'

/** As a time until which a lane waits: until someone resumes it. */
export const forever = 2 ** 52

/** The place of a lane's first item ever. */
export const firstPlace = 2 ** 40
