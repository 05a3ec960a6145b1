/**
 * An entry of a partition's stream: the events of one flush, at most 256.
 *
 * Its id is `<seq of its last event>-0`. It has two fields: the prevs of its events joined by spaces (empty: null), and their
 * records one behind the other: the record separator, which no JSON text holds, and the envelope. One text for all of them
 * is one value to send, to store and to decode, whatever their number.
 */

/** One event as it lies in the log, its envelope not yet looked into. */
export interface LogRecord {
  partition: number
  seq: number
  /** As text; '' for none. */
  prev: string
  envelope: string
}

export type Entry = [id: string, fields: [prevs: string, records: string]]

export const separator = '\x1e'

export const lastSeqOf = ([id]: Entry): number => Number(id.slice(0, id.indexOf('-')))

export function countOf([, [prevs]]: Entry): number {
  let count = 1
  for (let at = prevs.indexOf(' '); at !== -1; at = prevs.indexOf(' ', at + 1)) count += 1
  return count
}

export const firstSeqOf = (entry: Entry): number => lastSeqOf(entry) - countOf(entry) + 1

/** Of a lone event there is nothing to cut: here as below, looking for that costs less than a list made by cutting. */
export const prevsOf = ([, [prevs]]: Entry): string[] => (prevs.includes(' ') ? prevs.split(' ') : [prevs])

// In V8 a piece of a text keeps the whole alive. Whoever keeps an event, or its key, keeps no more than this of its entry.
const pieceLength = 2_048

/** A copy of its own. */
const cutLoose = (text: string): string => ` ${text}`.slice(1)

export function envelopesOf([, [, records]]: Entry): string[] {
  if (!records.includes(separator, 1)) return [records.slice(1)]
  const envelopes: string[] = []
  for (let from = 1; from < records.length; ) {
    const next = records.indexOf(separator, from + pieceLength)
    const to = next === -1 ? records.length : next
    envelopes.push(...cutLoose(records.slice(from, to)).split(separator))
    from = to + 1
  }
  return envelopes
}

/** The events of one entry that lie above `after`. */
export function entryRecords(partition: number, entry: Entry, after: number): LogRecord[] {
  const [prevs, envelopes] = [prevsOf(entry), envelopesOf(entry)]
  const firstSeq = lastSeqOf(entry) - prevs.length + 1
  const records: LogRecord[] = []
  for (let i = Math.max(0, after - firstSeq + 1); i < prevs.length; i += 1)
    records.push({ partition, seq: firstSeq + i, prev: prevs[i]!, envelope: envelopes[i]! })
  return records
}
