/**
 * What publish.lua says on a partition's channel: from where to where the log grew, which kinds of events came, and, when it
 * was a small lone one, the event itself. On a topic's channel it says the same, after the name of the partition's channel and
 * the seq of the flush before that had the topic.
 */
import type { Entry } from './entry.ts'

export interface LogHint {
  /** The partition's last seq before, and now. */
  before: number
  last: number
  /** "tenant:type" of all events, one per line; '' when unknown. */
  kinds: string
  /** All that came, where it is here. */
  entry: Entry | undefined
}

export interface TopicHint {
  /** The partition's own channel. */
  wake: string
  /** The last flush before this one that had the topic ended here. */
  topicBefore: number
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
    topicBefore: Number(message.slice(space + 1, second)),
    rest: message.slice(second + 1),
  }
}

function entryOf(last: string, text: string): Entry {
  const end = text.indexOf('\n')
  return [`${last}-0`, [text.slice(0, end), text.slice(end + 1)]]
}
