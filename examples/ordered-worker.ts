/**
 * Keeps the accounts of several shops: the bookings of an account one after the other, accounts at the same time.
 *
 *   npx busbar worker examples/ordered-worker.ts        in as many terminals as you like: they share the work
 *   npx busbar publish booking.made '{"amount":60}' --tenant acme --key account:ada --namespace ledger
 *   npx busbar publish booking.made '{"amount":10,"currency":"EUR"}' --tenant acme --key account:ada --namespace ledger
 *   npx busbar publish booking.made '{"amount":-25}' --tenant acme --key account:ada --namespace ledger
 *
 * Nobody knows what a euro is worth: after three attempts ada's account is parked, with what comes of it, and all other accounts go on.
 * Say what it is worth, and let the account go on: the euros are booked first, then what waits behind them.
 *
 *   npx busbar queue parked bookings --namespace ledger
 *   npx busbar publish rate.set '{"currency":"EUR","rate":1.1}' --tenant acme --key rate:EUR --namespace ledger
 *   npx busbar queue resume bookings --object acme/account:ada --namespace ledger
 *
 * Kill a worker with -9 in the middle: what it held is given to another one when its lease lapses, and nothing of those accounts
 * overtakes it meanwhile. It may have booked without having said so; then the balance says up to where it has come.
 */
import { busbar, type Event } from 'busbar'

interface Booking {
  amount: number
  currency?: string
}

interface Account {
  balance: number
  /** The last booking that is in it. */
  upTo: number
}

export const bus = busbar({
  redis: process.env.BUSBAR_REDIS_URL,
  namespace: process.env.LEDGER_NAMESPACE ?? 'ledger',
})

export const bookings = bus.queue('bookings', {
  match: ['booking.made', 'rate.set'],
  ordered: true,
  onPoison: 'park',
  retry: { attempts: 3, backoff: ['50ms', '1s'] },
  // A shop with a million bookings has at most half of the slots while others wait, and never asks the bank more than 200 times a second.
  limits: { maxShare: 0.5, ratePerTenant: { max: 200, per: '1s' }, backlog: 1_000_000 },
  lease: '2s',
})

bookings.work((event, ctx) => (event.type === 'rate.set' ? setRate(event) : book(event, ctx.attempt)), {
  concurrency: 20,
})

async function setRate({ id, tenant, data }: Event): Promise<void> {
  const { currency, rate } = data as { currency: string; rate: number }
  await bus.commit(`worth:${currency}`, [['rate.known', data]], { tenant, state: rate, idempotencyKey: id })
  console.log(`${tenant}: ${currency} is worth ${rate}`)
}

async function book({ id, seq, tenant, key, data }: Event, attempt: number): Promise<void> {
  const { amount, currency = 'USD' } = data as Booking
  const ledger = `ledger:${key}`
  const before = (await bus.state<Account>(ledger, { tenant })) ?? { balance: 0, upTo: 0 }
  if (seq <= before.upTo) return console.log(`${tenant}/${key}: ${amount} ${currency} was booked by one that is gone`)
  const rate = currency === 'USD' ? 1 : await bus.state<number>(`worth:${currency}`, { tenant })
  if (rate === null) throw new Error(`nobody knows what ${currency} is worth`)
  await askBank(amount, attempt)
  const after = { balance: before.balance + amount * rate, upTo: seq }
  // The balance, up to where it has come, and that it was booked: all of it or nothing, and once, whoever tries.
  await bus.commit(ledger, [['account.booked', { amount, currency }]], { tenant, state: after, idempotencyKey: id })
  console.log(`${tenant}/${key}: ${amount} ${currency}, balance ${after.balance}, attempt ${attempt}`)
}

/** Stands for a bank that takes its time, and is busy at first when it hears of a seven. */
async function askBank(amount: number, attempt: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 50))
  if (amount % 10 === 7 && attempt === 1) throw new Error('the bank is busy')
}
