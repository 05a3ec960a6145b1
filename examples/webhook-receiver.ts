/**
 * Receives webhooks of Busbar: verifies them, handles each event once, and answers when all of a batch are handled.
 *
 *   export WEBHOOK_SECRET=whsec_…        the secret of the subscription; several, separated by spaces, while it is rotated
 *   npx esbuild examples/webhook-receiver.ts | PORT=8080 node --input-type=module        Node 22.18 or newer runs the file as it is
 *
 * It knows neither the bus nor Redis: an endpoint of someone else's looks like this too. Kill it in the middle of a batch and start it again: the
 * sender has no answer, so it sends the batch again. What it had handled is handled once more then, as it remembers that in memory only:
 * `seen` may keep it in a database, next to what the handler writes.
 *
 * An event "mail.bounced" fails once, to show that the sender tries again and that nothing before it is handled twice.
 */
import { createServer } from 'node:http'
import { type Event, type EventContext, receiver } from 'busbar/client'

const secret = (process.env.WEBHOOK_SECRET ?? '').split(' ')
const port = Number(process.env.PORT ?? 8080)

const receive = receiver({
  secret,
  // Of each object only what is newer than what was shown, should an old batch be sent once more.
  order: 'monotone',
  onError: ({ code, message, cause }) =>
    console.error(`refused: ${code}: ${cause instanceof Error ? cause.message : message}`),
})

const failed = new Set<string>()

async function show({ id, type, tenant, key, json }: Event, { subscription }: EventContext): Promise<void> {
  if (type === 'mail.bounced' && !failed.has(id)) {
    failed.add(id)
    throw new Error(`${id} fails once`)
  }
  console.log(`${subscription}: ${id} ${type} of ${tenant}/${key}: ${json}`)
}

const server = createServer(receive.node(show))
server.listen(port, '127.0.0.1', () => {
  const { port: taken } = server.address() as { port: number }
  console.log(`receiving on http://127.0.0.1:${taken}/`)
})

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    server.close()
    server.closeIdleConnections()
  })
