/** From entries of the log to deliveries: each event once, and who gets it. */
import { kindOf } from '../envelope.ts'
import { type Entry, envelopesOf, lastSeqOf, prevsOf } from '../log/entry.ts'
import type { Delivery, Routed, Subscription } from './sink.ts'

export interface Stretch {
  entries: readonly Entry[]
  /** Events above this seq … */
  after: number
  /** … up to this one. */
  upTo: number
}

/** `wants` is asked once per run of events of one kind, mostly the whole stretch. */
export function deliveriesOf(
  { entries, after, upTo }: Stretch,
  wants: (tenant: string, type: string) => readonly Subscription[],
): Delivery[] {
  const found = new Map<Subscription, { subscription: Subscription; events: Routed[] }>()
  let start: string | undefined
  let tenant = ''
  let wanting: readonly Subscription[] = []
  for (const entry of entries) {
    const prevs = prevsOf(entry)
    const envelopes = envelopesOf(entry)
    const first = lastSeqOf(entry) - prevs.length + 1
    const end = Math.min(prevs.length, upTo - first + 1)
    for (let i = Math.max(0, after - first + 1); i < end; i += 1) {
      const envelope = envelopes[i]!
      if (start === undefined || !envelope.startsWith(start)) {
        const kind = kindOf(envelope)
        start = kind?.start
        tenant = kind?.tenant ?? ''
        wanting = kind ? wants(kind.tenant, kind.type) : []
      }
      if (wanting.length === 0) continue
      const routed = { seq: first + i, tenant, prev: prevs[i]!, envelope }
      for (const subscription of wanting) {
        const delivery = found.get(subscription)
        if (delivery) delivery.events.push(routed)
        else found.set(subscription, { subscription, events: [routed] })
      }
    }
  }
  return [...found.values()]
}
