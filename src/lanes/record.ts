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

const widths: readonly (readonly [keyof LaneRecord, bytes: number])[] = [
  ['waiting', 4],
  ['bytes', 6],
  ['ranked', 4],
  ['later', 4],
  ['held', 4],
  ['dead', 4],
  ['entered', 6],
  ['left', 6],
  ['notBefore', 6],
  ['credit', 4],
]

export function readRecord(packed: Buffer): LaneRecord {
  let at = 0
  const read = (bytes: number) => {
    at += bytes
    return packed.readUIntBE(at - bytes, bytes)
  }
  return Object.fromEntries(widths.map(([name, bytes]) => [name, read(bytes)])) as unknown as LaneRecord
}
