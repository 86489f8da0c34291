python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=256 \
    trainer.n_gpus_per_node=2 \
    trainer.nnodes=1
