/**
 * Keeps a running total per customer from the orders in the log, and says when one becomes a regular.
 *
 *   npx busbar worker examples/stream-processor.ts        in as many terminals as you like: they share the partitions
 *   npx busbar publish order.paid '{"customer":"ada","total":60}' --key customer:ada --namespace loyalty
 *   npx busbar streams --namespace loyalty
 *
 * All events of a customer have the same key, so they come here one after the other, also when a worker dies and another
 * takes over. A worker that dies after the publish and before its commit handles the event again: the idempotency key,
 * made from the event's id, keeps what it publishes from being there twice, and the total is committed with it.
 */
import { busbar } from 'busbar'

interface Order {
  customer: string
  total: number
}

interface Customer {
  spent: number
  /** The last order that is in `spent`. */
  upTo: number
}

const regularFrom = 100

export const bus = busbar({
  redis: process.env.BUSBAR_REDIS_URL,
  // Of its own: orders that others publish need not be of these customers.
  namespace: process.env.LOYALTY_NAMESPACE ?? 'loyalty',
})

bus.processor('regulars', { match: 'order.paid', retry: { attempts: 5 }, onPoison: 'park' }, async (events, ctx) => {
  for await (const event of events) {
    const { customer, total } = event.data as Order
    const key = `totals:${customer}`
    const before = (await bus.state<Customer>(key)) ?? { spent: 0, upTo: 0 }
    if (event.seq <= before.upTo) continue
    const after = { spent: before.spent + total, upTo: event.seq }
    const became = before.spent < regularFrom && after.spent >= regularFrom
    await bus.commit(key, [[became ? 'customer.regular' : 'customer.paid', { customer, ...after }]], {
      state: after,
      idempotencyKey: event.id,
    })
    console.log(
      `partition ${ctx.partition}: ${customer} has spent ${after.spent}${became ? ' and is a regular now' : ''}`,
    )
  }
})
