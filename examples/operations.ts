/**
 * Synchronises links, and lets anyone see what became of it: who asked for it, how far it is, how it ended.
 *
 *   npx busbar worker examples/operations.ts    in as many terminals as you like
 *   npx busbar send link-sync '{"repo":"ada/engine","accessToken":"s3cret"}' --key link:456 --kind manual --namespace links
 *   npx busbar op ID --wait 30s --namespace links
 *   npx busbar ops link:456 --namespace links
 *   npx busbar stats link-sync --namespace links
 *   npx busbar triggers create resync --queue link-sync --key link:456 --data '{"repo":"ada/engine"}' --namespace links
 *   npx busbar up --namespace links --http-port 0    in a terminal of its own: it says where it is
 *   curl http://127.0.0.1:PORT/_SECRET               PORT from there, /_SECRET as `triggers create` has printed it
 *
 * The access token goes to the handler and nowhere else: what is shown of an operation never has it. A worker that is killed leaves nothing
 * running: the operation is queued again when its lease lapses, and run by another.
 */
import { busbar } from 'busbar'

interface Link {
  repo: string
}

export const bus = busbar({
  redis: process.env.BUSBAR_REDIS_URL,
  namespace: process.env.LINKS_NAMESPACE ?? 'links',
})

export const sync = bus.queue('link-sync', {
  track: true,
  redact: ['accessToken'],
  retry: { attempts: 3, backoff: ['100ms', '10s'] },
})

sync.work(async (event, ctx) => {
  const { repo } = event.data as Link
  const branches = await branchesOf(repo)
  for (const [n, branch] of branches.entries()) {
    ctx.signal.throwIfAborted()
    await copy(repo, branch)
    ctx.progress({ done: n + 1, of: branches.length })
    ctx.log(`${branch} is up to date`)
  }
  console.log(`${repo}: ${branches.length} branches, ${ctx.kind}`)
  return { branches: branches.length }
})

/** Stands for a host that does not know every repository. */
async function branchesOf(repo: string): Promise<string[]> {
  if (!repo.includes('/')) throw new Error(`there is no repository ${repo}`)
  return ['main', 'next']
}

async function copy(_repo: string, _branch: string): Promise<void> {}
