/**
 * Sends a mail for each order that was paid: fair between shops, tried again when the mail server is busy.
 *
 *   npx busbar worker examples/worker.ts        in as many terminals as you like: they share the work
 *   npx busbar publish order.paid '{"to":"ada@example.com"}' --tenant acme --namespace mailroom
 *   npx busbar send mails '{"to":"bob@example.com"}' --tenant globex --namespace mailroom
 *   npx busbar queue mails --namespace mailroom
 *
 * A shop with a hundred thousand orders waiting does not keep the others waiting: each has its turn, acme three mails in each.
 * A worker that is killed loses nothing: what it held is given to another one when its lease lapses, and then the same mail
 * may be sent twice. So the mail's own id is made from the item's: a server that knows it sends it once.
 */
import { busbar } from 'busbar'

interface Mail {
  to: string
}

export const bus = busbar({
  redis: process.env.BUSBAR_REDIS_URL,
  namespace: process.env.MAILROOM_NAMESPACE ?? 'mailroom',
})

export const mails = bus.queue('mails', {
  match: 'order.paid',
  weights: { acme: 3 },
  retry: { attempts: 4, backoff: ['1s', '1m'] },
  lease: '10s',
})

mails.work(
  async (event, ctx) => {
    const { to } = event.data as Mail
    if (!to.includes('@')) return ctx.dead(`"${to}" is no address`)
    if (await serverIsBusy(to, ctx.attempt)) return ctx.retry('200ms', 'the mail server is busy')
    await deliver({ id: `<${event.id}@shop>`, to }, ctx.signal)
    console.log(`${event.tenant}: mail to ${to}, attempt ${ctx.attempt}`)
  },
  { concurrency: 20, timeout: '30s' },
)

/** Stands for a mail server that takes nothing from some at first. */
async function serverIsBusy(to: string, attempt: number): Promise<boolean> {
  return to.startsWith('busy') && attempt === 1
}

async function deliver(_mail: { id: string; to: string }, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
}
