/**
 * What publish.lua says on a partition's channel: from where to where the log grew, which kinds of events came, and, when it
 * was a small lone one, the event itself. On a topic's channel it says the same, after the name of the partition's channel and,
 * of each topic that came, the seq of the flush before that had it.
 */
import type { Entry } from './entry.ts'

export interface LogHint {
  /** The partition's last seq before, Infinity when unknown; and now. */
  before: number
  last: number
  /** "tenant:type" of all events, one per line; '' when unknown. */
  kinds: string
  /** All that came, where it is here. */
  entry: Entry | undefined
}

export interface TopicSeq {
  topic: string
  seq: number
}

export interface TopicHint {
  /** The partition's own channel. */
  wake: string
  /** Of each topic of this flush: where the one before that had it ended. None: they are too many to be told. */
  befores: readonly TopicSeq[]
  /** As it is on the partition's channel. */
  rest: string
}

const alongStart = '\n\n'

export function readHint(message: string): LogHint {
  const space = message.indexOf(' ')
  const line = message.indexOf('\n')
  const along = message.indexOf(alongStart, line)
  const last = message.slice(space + 1, line)
  const end = along === -1 ? message.length : along
  return {
    before: Number(message.slice(0, space)),
    last: Number(last),
    kinds: end > line ? message.slice(line + 1, end) : '',
    entry: along === -1 ? undefined : entryOf(last, message.slice(along + alongStart.length)),
  }
}

export function readTopicHint(message: string): TopicHint {
  const space = message.indexOf(' ')
  const second = message.indexOf(' ', space + 1)
  return {
    wake: message.slice(0, space),
    befores: message
      .slice(space + 1, second)
      .split(',')
      .map((text) => text.split(':'))
      .flatMap(([topic, seq]) => (topic && seq ? { topic, seq: Number(seq) } : [])),
    rest: message.slice(second + 1),
  }
}

function entryOf(last: string, text: string): Entry {
  const end = text.indexOf('\n')
  return [`${last}-0`, [text.slice(0, end), text.slice(end + 1)]]
}
