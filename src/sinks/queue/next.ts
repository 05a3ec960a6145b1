/**
 * A lone event on its way into the log and, if everything before it is routed, right into the queue that alone wants it, to a worker that
 * waits: one script, one way to Redis (next.lua). Whatever is not so is left to the router.
 */
import {
  type Accept,
  type ClaimReply,
  type Lone,
  loneKeys,
  lonePart,
  loneWords,
  readClaimed,
} from '../../lanes/acts.ts'
import type { StoreInput } from '../../lanes/scripts.ts'
import type { FlushInput, FlushReply } from '../../log/flush.ts'
import { oneArgs, oneKeys, onePart, type RawOne, readOne } from '../../publish/scripts.ts'
import { defineScript } from '../../redis/script.ts'

export interface NextEvent {
  store: StoreInput
  flush: FlushInput
  claim: Lone['claim']
  accept: Pick<Accept, 'revision' | 'born' | 'partition'>
  lane: string
  /** Up to where the partition is routed. */
  after: number
}

export interface NextReply {
  /** Undefined when publish.lua has to look at it. */
  stored: FlushReply | undefined
  /** What the claim was given; undefined when it was given nothing, and nothing was claimed. */
  claimed: ClaimReply | undefined
}

type RawNext = RawOne | ['stored', last: string, prev: string, before: string, words: string, item: string]

export const nextScript = defineScript({
  file: new URL('./next.lua', import.meta.url),
  parts: { around: [], within: [onePart, lonePart] },
  keys: ({ store, flush }: NextEvent) => [...loneKeys(store), ...oneKeys(flush)],
  args: ({ store, flush, claim, accept, lane, after }) => [
    loneWords(store, accept, claim),
    lane,
    `${accept.partition} ${after}`,
    ...oneArgs(flush),
  ],
  reply: (raw: RawNext): NextReply => {
    const [kind, last, prev, before, words, item] = raw
    const stored = readOne([kind, last, prev, before] as RawOne)
    if (words === undefined) return { stored, claimed: undefined }
    const [revision, now, due] = words.split(' ')
    return { stored, claimed: readClaimed(['claimed', Number(revision), now!, 0, Number(due), item!]) }
  },
})
